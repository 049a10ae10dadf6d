//! A fabric, and the devices that are open on it.
//!
//! In libfabric a passive endpoint belongs to a fabric, and the endpoints that answer its requests to any of its domains; here a
//! listener and its endpoints belong to one domain. So a fabric has one hidden domain for each device, which all of theirs on it share.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, Weak};

use fabric::{Capabilities, Catalog, Choice, Hints};

use super::completions::Completions;
use super::requests::Requests;
use crate::abi::FidFabric;
use crate::abi::flags::FI_CLASS_FABRIC;
use crate::errno::Errno;
use crate::handle::Object;
use crate::sync::lock;

/// A fabric.
pub(crate) struct Fabric {
    /// The version of the interface that the application was written for.
    pub(crate) version: u32,
    devices: Mutex<HashMap<String, Weak<Device>>>,
    pub(crate) requests: Requests<Arc<Device>>,
}

// SAFETY: `FidFabric` is repr(C) and begins with a fid; the class is of this alone.
unsafe impl Object for Fabric {
    type C = FidFabric;
    const CLASS: usize = FI_CLASS_FABRIC;
}

/// An open device.
pub(crate) struct Device {
    pub(crate) domain: fabric::Domain,
    /// Held while an endpoint takes its room in completion queues.
    pub(crate) binding: Mutex<()>,
    /// Those that may hold its regions.
    queues: Mutex<Vec<Weak<Completions>>>,
    /// Those with receives that may hold its regions for ever.
    holders: Mutex<Vec<Weak<dyn RegionHolder>>>,
}

/// An endpoint whose operations hold regions until a peer does something.
pub(crate) trait RegionHolder: Send + Sync {
    /// Gives up receives into the region with this number.
    fn release(&self, region: u64);
}

impl Fabric {
    pub(crate) fn new(version: u32) -> Self {
        Fabric { version, devices: Mutex::default(), requests: Requests::default() }
    }

    /// The device of a domain's name, `auto:eth0`; opened if it is not.
    pub(crate) fn device(&self, name: &str) -> Result<Arc<Device>, Errno> {
        let mut devices = lock(&self.devices);
        if let Some(device) = devices.get(name).and_then(Weak::upgrade) {
            return Ok(device);
        }
        devices.retain(|_, device| device.strong_count() > 0);
        let needed = Capabilities::SEND | Capabilities::RMA;
        let hints = Hints { capabilities: needed, ..Hints::default() };
        let domain = Catalog::builtin().open_with(&Choice::parse(name)?, &hints)?;
        let device = Arc::new(Device {
            domain,
            binding: Mutex::default(),
            queues: Mutex::default(),
            holders: Mutex::default(),
        });
        devices.insert(name.to_owned(), Arc::downgrade(&device));
        Ok(device)
    }
}

impl Device {
    pub(crate) fn add_queue(&self, queue: &Arc<Completions>) {
        let mut queues = lock(&self.queues);
        queues.retain(|queue| queue.strong_count() > 0);
        queues.push(Arc::downgrade(queue));
    }

    pub(crate) fn add_holder(&self, holder: Weak<dyn RegionHolder>) {
        let mut holders = lock(&self.holders);
        holders.retain(|holder| holder.strong_count() > 0);
        holders.push(holder);
    }

    /// The application gives up what it receives into that region.
    pub(crate) fn release(&self, region: u64) {
        let holders: Vec<_> = lock(&self.holders).iter().filter_map(Weak::upgrade).collect();
        holders.iter().for_each(|holder| holder.release(region));
    }

    /// Takes all completions from the queues of ours, so that what they hold is let go.
    pub(crate) fn drain(&self) {
        let queues: Vec<_> = lock(&self.queues).iter().filter_map(Weak::upgrade).collect();
        for queue in queues {
            if let Err(errno) = queue.drain() {
                log::debug!("a completion queue is not drained: {errno:?}");
            }
        }
    }
}
