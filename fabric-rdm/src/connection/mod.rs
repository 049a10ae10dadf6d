//! The connection to one peer: made on demand, one at a time, parked and made again, until the peer is lost.
//!
//! A [`PeerConnection`] decides, and the caller does: it connects, accepts and closes as the [`Action`]s say, and says what
//! happened and what time it is. The rules:
//!
//! - **One connection.** When both sides connect at once, the attempt of the lower identity wins: its side refuses the
//!   other's, and the other side accepts and gives up its own. A side whose attempt was refused for that waits for the
//!   winner's, which a firewall may swallow, and after a bound tries with force: that wins.
//! - **Sessions.** Each attempt has a number, higher than all that its side has seen of the pair, and a connection one as
//!   high as any attempt of both sides so far. So a request that was given up, and arrives much later, is refused.
//! - **Confirmation.** The acceptor has a connection only once the initiator confirmed it. An attempt that was given up in
//!   the meantime is no loss.
//! - **Identities.** Who is meant and who asks is in each request. If another incarnation has the address now, the peer is
//!   gone.
//! - **Parking.** Both sides finish what is under way, say so as the last thing, and then the connection is closed. Posts
//!   in the meantime wait, and connect again.
//! - **Death.** When a connection that carried something is lost, the peer is dead until it is revived: what was under way
//!   may have happened or not, and is not repeated. Each revival begins another *life* of the pair, which both sides have
//!   to begin: the one that did not notice the death learns of it by the number of the life.
//! - **Order.** Messages are numbered within a life, and not within a connection. Both sides compare their numbers before a
//!   new connection is used, so that a gap is a death and never passes for order.

mod action;
mod attempts;
mod hello;
mod machine;
mod numbering;
mod parking;
#[cfg(test)]
mod tests;

pub use action::{Action, Answer, ConnId, DeathCause, DialError, Phase, Timeouts};
pub use hello::{Hello, Refusal};
pub use machine::PeerConnection;
