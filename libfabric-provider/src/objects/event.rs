//! Events: as they wait in a queue, and as they are read.

use std::sync::Arc;

use fabric::{Error, Event};

use super::devices::Device;
use super::requests::Requests;
use crate::abi::FiEqCmEntry;
use crate::abi::flags::{FI_CONNECTED, FI_CONNREQ, FI_SHUTDOWN};
use crate::discovery::owned::OwnedInfo;
use crate::errno::Errno;
use crate::handle::Name;

/// An endpoint's handle, and the context that it was made with.
#[derive(Clone, Copy)]
pub(crate) struct Owner {
    pub(crate) name: Name,
    pub(crate) context: usize,
}

/// A listener, and what an info of its requests is made from.
pub(crate) struct Listening {
    pub(crate) listener: fabric::Listener,
    pub(crate) owner: Owner,
    pub(crate) template: OwnedInfo,
    pub(crate) device: Arc<Device>,
}

/// An event that waits to be read.
pub(super) enum Entry {
    Connected {
        owner: Owner,
        data: Box<[u8]>,
    },
    Request {
        listening: Arc<Listening>,
        request: fabric::ConnectRequest,
    },
    /// A request that was handed out, with what the application reads of it.
    Shown {
        listening: Arc<Listening>,
        info: OwnedInfo,
        request: Name,
        data: Box<[u8]>,
    },
    Shutdown {
        owner: Owner,
    },
    Failed(EventError),
    Written {
        event: u32,
        bytes: Box<[u8]>,
    },
}

/// A connection that could not be made.
pub(crate) struct EventError {
    pub(crate) owner: Owner,
    pub(crate) errno: Errno,
    pub(crate) data: Box<[u8]>,
}

/// An event as it is read.
pub(crate) struct Delivery {
    pub(crate) event: u32,
    pub(crate) body: Body,
}

/// What comes with it.
pub(crate) enum Body {
    Connection { name: Name, info: Option<RequestInfo>, data: Box<[u8]> },
    Written(Box<[u8]>),
}

/// That of a request.
pub(crate) enum RequestInfo {
    /// The application's from now on.
    Given(OwnedInfo),
    /// The same as it gets when it takes the event.
    Shown(Name),
}

impl Entry {
    pub(super) fn owner(&self) -> Option<Owner> {
        match self {
            Entry::Connected { owner, .. } | Entry::Shutdown { owner } => Some(*owner),
            Entry::Failed(failure) => Some(failure.owner),
            Entry::Request { listening, .. } | Entry::Shown { listening, .. } => {
                Some(listening.owner)
            }
            Entry::Written { .. } => None,
        }
    }

    /// The bytes that it takes at least.
    pub(super) fn size(&self) -> usize {
        match self {
            Entry::Written { bytes, .. } => bytes.len(),
            _ => size_of::<FiEqCmEntry>(),
        }
    }

    /// As an application gets to see it: a request is handed out.
    pub(super) fn shown(self, requests: &Requests<Arc<Device>>) -> Result<Self, Errno> {
        let Entry::Request { listening, request } = self else { return Ok(self) };
        let mut info = listening.template.duplicate()?;
        info.set_destination(request.peer_addr())?;
        let data = request.private_data().into();
        let request = requests.add(request, listening.device.clone());
        info.set_handle(request);
        Ok(Entry::Shown { listening, info, request, data })
    }

    /// A look at it.
    pub(super) fn peek(&self) -> Delivery {
        let connection = |event, owner: Owner, data: &[u8]| Delivery {
            event,
            body: Body::Connection { name: owner.name, info: None, data: data.into() },
        };
        match self {
            Entry::Connected { owner, data } => connection(FI_CONNECTED, *owner, data),
            Entry::Shutdown { owner } => connection(FI_SHUTDOWN, *owner, &[]),
            Entry::Failed(error) => connection(FI_SHUTDOWN, error.owner, &[]),
            Entry::Request { listening, request } => {
                connection(FI_CONNREQ, listening.owner, request.private_data())
            }
            Entry::Shown { listening, info, data, .. } => {
                let (name, info) = (listening.owner.name, Some(RequestInfo::Shown(info.name())));
                let body = Body::Connection { name, info, data: data.clone() };
                Delivery { event: FI_CONNREQ, body }
            }
            Entry::Written { event, bytes } => {
                Delivery { event: *event, body: Body::Written(bytes.clone()) }
            }
        }
    }

    pub(super) fn deliver(self, requests: &Requests<Arc<Device>>) -> Result<Delivery, Errno> {
        let entry = self.shown(requests)?;
        let mut delivery = entry.peek();
        if let (Body::Connection { info, .. }, Entry::Shown { info: own, .. }) =
            (&mut delivery.body, entry)
        {
            *info = Some(RequestInfo::Given(own));
        }
        Ok(delivery)
    }
}

/// What the application reads of an event of a connection that begins.
pub(super) fn entry(owner: Owner, event: Event) -> Option<Entry> {
    Some(match event {
        Event::Connected { data, .. } => Entry::Connected { owner, data },
        Event::ConnectFailed { error, .. } => {
            let errno = Errno::from(&error);
            log::info!("{error}");
            let data = if let Error::Rejected(data) = error { *data } else { Box::default() };
            Entry::Failed(EventError { owner, errno, data })
        }
        _ => return None,
    })
}
