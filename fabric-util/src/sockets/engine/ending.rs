//! How an engine ends: with its domain, or by a panic of its thread.

use super::{Engine, EventSource, Member};
use crate::sockets::family::SocketFamily;
use crate::{callback, log_line};

impl<F: SocketFamily> Engine<F> {
    /// Has the thread end: behind what its connections still owe their peers.
    pub(crate) fn stop(&self) {
        self.progress.stop();
    }

    /// Whether a peer has not taken yet what a connection left for it, and has time left for that.
    pub(super) fn lingers(&self) -> bool {
        // Not under the lock of the members, which comes behind those of connections.
        let members: Vec<_> = self.members.lock().values().cloned().collect();
        members.iter().any(|member| matches!(member, Member::Conn(conn) if conn.stream.lingers()))
    }

    /// Closes every socket.
    pub(super) fn clear(&self) {
        let members: Vec<_> = self.members.lock().drain().map(|(_, member)| member).collect();
        for member in members {
            member.close();
        }
        self.requests.clear();
        self.progress.clear();
    }

    /// The thread panicked: nothing of the domain can be relied on.
    #[cold]
    pub(super) fn fail(&self) {
        let members: Vec<_> = self.members.lock().values().cloned().collect();
        for member in members {
            if let Member::Conn(conn) = member {
                // What made the thread panic may be the state of this very connection.
                let _ = callback::caught(|| self.lock(&conn).fail());
                self.forget(conn.name);
            } else if let Member::Datagrams(socket) = member {
                let _ = callback::caught(|| socket.fail());
            }
        }
        let device = &self.info.device;
        log_line!(Error, "the engine of {}:{device} panicked; its endpoints end", F::NAME);
        let _ = callback::caught(|| self.report());
    }
}
