//! A program as the asynchronous layer can run it.

use super::super::program::{EndSpec, Local, MemorySpec, OpSpec, Part, Program, Step, What};

/// Operations of one end at a time.
pub(super) const DEPTH: usize = 32;
/// Buffers of one operation.
pub(super) const SEGMENTS: usize = 4;
/// Receives of one end.
pub(super) const RECEIVES: usize = 8;
/// Receives that one end can have as far as its peer knows: messages and notifications that were not taken wait apart, and
/// each kind leaves the other its room.
pub(super) const SLOTS: usize = 2 * RECEIVES;
/// The longest message; longer ones the layer refuses before the fabric sees them.
pub(super) const MESSAGE: usize = 8 << 10;

/// The program without what the layer does by itself, or does not have. Behind its memories comes one for each end, where
/// messages land.
pub(super) fn adapted(program: &Program) -> Program {
    let mut new = program.clone();
    for end in new.connections.iter_mut().flatten() {
        let EndSpec { domain, shared, .. } = *end;
        let (send_depth, recv_depth, inject) = (DEPTH, SLOTS, usize::MAX);
        *end = EndSpec { domain, send_depth, recv_depth, segments: SEGMENTS, inject, shared };
        new.memories.push(MemorySpec { domain, len: SLOTS * MESSAGE });
    }
    for step in &mut new.steps {
        if let Step::Post { end, ops } = step {
            let (end, all) = (*end, std::mem::take(ops));
            ops.extend(all.iter().filter_map(|op| operation(program, end, op)));
        }
    }
    let nothing = |step: &Step| match step {
        Step::Receive { .. } => true,
        Step::Post { ops, .. } => ops.is_empty(),
        _ => false,
    };
    new.steps.retain(|step| !nothing(step));
    new
}

/// The operation, signaled, with buffers that are whole memories' parts.
fn operation(program: &Program, end: usize, op: &OpSpec) -> Option<OpSpec> {
    let mut op = OpSpec { unsignaled: false, ..op.clone() };
    let domain = program.connections.get(end / 2)?[end % 2].domain;
    if let What::Atomic { fetch, call, .. } = &mut op.what {
        // The layer always gives the old value; what has no place for it gets one where little else is.
        let size = call.ty.size();
        if !std::mem::replace(fetch, true) {
            let (memory, spec) = program.memories_of(domain).next()?;
            let region = program.regions.len() + memory;
            op.local = Local::Parts(vec![Part { region, at: spec.len - size, len: size }]);
            (op.immediate, op.delivery_complete) = (None, false);
            return Some(op);
        }
        op.delivery_complete = false;
    }
    if !matches!(op.what, What::Send | What::Write(_)) {
        op.immediate = None;
    }
    if let Local::Parts(parts) = &mut op.local {
        parts.retain(|part| part.len > 0);
        for part in parts.iter_mut() {
            let spec = program.regions.get(part.region)?;
            if program.memories[spec.memory].domain != domain || part.at + part.len > spec.len {
                return None;
            }
            let region = program.regions.len() + spec.memory;
            *part = Part { region, at: spec.start + part.at, len: part.len };
        }
        if parts.len() > SEGMENTS {
            return None;
        }
    }
    match op.what {
        What::Send if op.len() > MESSAGE => None,
        What::Atomic { call, .. } if op.len() != call.ty.size() => None,
        _ => Some(op),
    }
}
