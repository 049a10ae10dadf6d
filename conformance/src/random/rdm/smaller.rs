//! What is simpler in a program of datagram endpoints, when it is made smaller.

use std::ops::Range;

use super::program::{Payload, RdmProgram, RdmSettings, RdmStep, SendSpec, Want};
use crate::random::shrink::{Search, Shrink};
use crate::random::testbed::Disagreement;

impl Shrink for RdmProgram {
    fn count(&self) -> usize {
        self.steps.len()
    }

    fn leave_out(&mut self, steps: Range<usize>) {
        self.steps.drain(steps);
    }

    fn simplify<F: FnMut(&Self) -> Result<(), Disagreement>>(search: &mut Search<Self, F>) {
        for simpler in SETTINGS {
            let candidate = search.changed(|program| simpler(&mut program.settings));
            search.take(candidate);
        }
        for at in 0..search.best.steps.len() {
            for simpler in STEPS {
                let candidate = search.changed(|program| simpler(&mut program.steps[at]));
                search.take(candidate);
            }
        }
    }
}

/// Settings as they are unless set, and fewer endpoints.
const SETTINGS: &[fn(&mut RdmSettings)] = &[
    |settings| settings.ends = 2,
    |settings| settings.ends = settings.ends.min(3),
    |settings| settings.max_open = 256,
    |settings| settings.send_depth = 1024,
    |settings| settings.recv_depth = 1024,
    |settings| settings.window = 64,
    |settings| settings.bytes = 1 << 20,
    |settings| settings.slots = 128,
    |settings| settings.slot_len = 8192,
    |settings| settings.rendezvous = 32 << 10,
    |settings| settings.connection_depth = 64,
    |settings| settings.drops = false,
];

const STEPS: &[fn(&mut RdmStep)] = &[
    |step| with_send(step, |spec| spec.matched = false),
    |step| with_send(step, |spec| spec.unsignaled = false),
    |step| with_send(step, |spec| spec.immediate = true),
    |step| with_send(step, |spec| spec.len = 0),
    |step| with_send(step, |spec| spec.len = spec.len.min(64)),
    |step| with_send(step, |spec| spec.payload = Payload::Inject),
    |step| with_send(step, |spec| spec.payload = Payload::Region),
    |step| with_send(step, |spec| spec.tag = None),
    |step| with_send(step, |spec| spec.tag = spec.tag.map(|_| 0)),
    |step| with_want(step, |want| want.from = None),
    |step| with_want(step, |want| want.tag = None),
    |step| with_want(step, |want| want.tag = want.tag.map(|_| 0)),
    |step| with_want(step, |want| want.ignore = 0),
    |step| {
        if let RdmStep::Receive { min_free, .. } = step {
            *min_free = None;
        }
    },
    |step| {
        if let RdmStep::OneSided { fence, unsignaled, .. } = step {
            (*fence, *unsignaled) = (false, false);
        }
    },
    |step| {
        if let RdmStep::Wait(at) = *step {
            *step = RdmStep::Poll(at);
        }
    },
];

fn with_send(step: &mut RdmStep, change: impl FnOnce(&mut SendSpec)) {
    if let RdmStep::Send { spec, .. } = step {
        change(spec);
    }
}

fn with_want(step: &mut RdmStep, change: impl FnOnce(&mut Want)) {
    if let RdmStep::Receive { want, .. } | RdmStep::Probe { want, .. } = step {
        change(want);
    }
}
