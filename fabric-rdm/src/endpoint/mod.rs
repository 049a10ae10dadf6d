//! The endpoint: reliable datagrams over connected endpoints of `fabric`.
//!
//! | file | what belongs there |
//! |---|---|
//! | `handle` | the endpoint as applications have it |
//! | `driver`, `watch` | who polls: the application, or the service; the descriptor for event loops |
//! | `service`, `seat`, `calls` | the thread that makes progress where the application does not, each endpoint as it sees it, and what it is asked for |
//! | `core`, `shared` | what is under the endpoint's lock, and one turn of progress |
//! | `link` | what there is for one peer |
//! | `connecting`, `requests`, `held`, `room` | connections as their state machines want them, those that peers ask for, and how many |
//! | `attempts`, `appointments`, `shortage` | how many attempts there are at a time, when refused peers come again, and what the process has too little of |
//! | `hello_data` | what requests and their answers carry |
//! | `sends`, `transmit`, `posting` | posts, what goes out, and the posts of connections by which it does |
//! | `receives`, `deliveries` | what comes in, which receive it meets, and how its payload gets there |
//! | `claimed`, `written` | messages without a receive, found and claimed; writes to memory here, taken apart |
//! | `rendezvous` | payload that stays at its sender |
//! | `to_self`, `own`, `own_connection` | operations to oneself, and the connection by which one-sided ones go |
//! | `ending` | death, removal, cancel |
//! | `wire`, `slots` | the format of frames, and the memory they are in |

mod appointments;
mod attempts;
mod attr;
mod calls;
mod claimed;
mod completion;
mod connecting;
mod core;
mod counters;
mod deliveries;
mod dialed_rail;
mod driver;
mod ending;
mod handle;
mod held;
mod hello_data;
mod link;
mod lock;
mod op;
mod ops;
mod own;
mod own_connection;
mod post_error;
mod posting;
mod receives;
mod rendezvous;
mod requests;
mod room;
mod seat;
mod sends;
mod service;
mod shared;
mod shortage;
mod slots;
mod table;
mod to_self;
mod transmit;
mod watch;
mod wire;
mod written;

pub use attr::RdmAttr;
pub use claimed::{Claimed, Probed};
pub use completion::{Completion, Kind, Status};
pub use counters::Counter;
pub use handle::{Endpoint, OpId};
pub use op::{PayloadRef, Recv, Send};
pub use post_error::{Full, PostError};
pub use shared::PeerEvent;
