//! The receives of a connection for leases: whose memory they have, until each has ended.
//!
//! The node keeps them beside the connection, and longer: a receive's buffer goes back to the pool when its completion
//! was taken, which may be after the connection is gone. One that has no completion, since its endpoint could not be brought
//! to rest, keeps its buffer for ever.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use fabric::provider::sync::Mutex;
use fabric::{Endpoint, EndpointId};

use super::Control;
use crate::buffer::Buffer;
use crate::cargo::Piece;
use crate::error::Result;

/// The buffers of the receives that are posted, by context.
#[derive(Default)]
pub(crate) struct Receives(Mutex<Vec<Option<Piece>>>);

impl Receives {
    /// Posts a receive into all of a buffer.
    pub(super) fn post(&self, endpoint: &Endpoint, context: usize, buffer: Buffer) -> Result<()> {
        let len = buffer.len();
        let piece = Piece::new(buffer, 0, len);
        let mut receives = self.0.lock();
        if receives.len() <= context {
            receives.resize_with(context + 1, || None);
        }
        // Held over the post, so that whoever takes the completion finds the buffer.
        let posted = match piece.slice() {
            Some(slice) => endpoint.recv(slice, context as u64),
            None => Ok(()),
        };
        let refused = match &posted {
            Ok(()) => {
                receives[context] = Some(piece);
                None
            }
            Err(_) => Some(piece),
        };
        drop(receives);
        refused.into_iter().for_each(|piece| drop(piece.land()));
        Ok(posted?)
    }

    /// A receive has ended.
    pub(super) fn ended(&self, context: usize) -> Option<Buffer> {
        let piece = self.0.lock().get_mut(context)?.take()?;
        Some(piece.land())
    }

    fn are_over(&self) -> bool {
        self.0.lock().iter().all(Option::is_none)
    }
}

/// The connections for leases of a node, and receives of some that are gone.
#[derive(Default)]
pub(crate) struct Controls(HashMap<EndpointId, (Weak<Control>, Arc<Receives>)>);

impl Controls {
    pub(super) fn add(&mut self, id: EndpointId, control: &Arc<Control>, receives: &Arc<Receives>) {
        self.0.insert(id, (Arc::downgrade(control), receives.clone()));
    }

    pub(super) fn get(&self, id: EndpointId) -> Option<(Option<Arc<Control>>, Arc<Receives>)> {
        let (control, receives) = self.0.get(&id)?;
        Some((control.upgrade(), receives.clone()))
    }

    pub(super) fn all(&self) -> Vec<Arc<Control>> {
        self.0.values().filter_map(|(control, _)| control.upgrade()).collect()
    }

    /// Forgets a connection that is gone, if its receives are over.
    pub(super) fn forget(&mut self, id: EndpointId) {
        let is_gone = |(control, receives): &(Weak<Control>, Arc<Receives>)| {
            control.strong_count() == 0 && receives.are_over()
        };
        if self.0.get(&id).is_some_and(is_gone) {
            self.0.remove(&id);
        }
    }

    /// Gives up the receives that have not ended, with their buffers; says how many.
    pub(super) fn leak(&self) -> usize {
        let left =
            self.0.values().flat_map(|(_, receives)| std::mem::take(&mut *receives.0.lock()));
        left.flatten().map(Piece::leak).count()
    }
}
