//! The provider: which devices can be joined with shared memory, and what both offer.

use std::sync::Arc;

use fabric_core::{
    AtomicScope, Capabilities, Device, DomainAttr, DynProvider, Error, EventSink, Failure, Info,
    Provider, Result, Unusable,
};
use provider_shm::ShmProvider;

use crate::domain::AutoDomain;
use crate::name::NAME;

/// What concerns the device alone, and holds where it has it.
const OF_THE_DEVICE: Capabilities =
    Capabilities::LOCKS_MEMORY.union(Capabilities::PATH_SETTINGS).union(Capabilities::PORT_EVENTS);

/// What connections of both ways may have, and the domain not.
const WITHDRAWN: Capabilities = Capabilities::SHARED_RECEIVES.union(Capabilities::ATOMIC);

/// Shared memory for the peers of this host, and the devices of another provider for all others. A device has the name that it
/// has there.
pub struct AutoProvider {
    near: ShmProvider,
    far: Arc<dyn DynProvider>,
}

impl AutoProvider {
    /// Of these two.
    pub fn new(near: ShmProvider, far: Arc<dyn DynProvider>) -> Self {
        AutoProvider { near, far }
    }

    /// The device of shared memory.
    fn near(&self) -> Result<Info, Unusable> {
        let first = Provider::devices(&self.near).into_iter().next();
        let none = || Err(unusable("shm has no device", "see `fabric info shm`"));
        first.map_or_else(none, |device| device.state)
    }

    /// What a domain of both offers.
    fn joined(&self, near: &Info, far: &Info) -> Info {
        let mut info = far.clone();
        info.provider = NAME;
        info.version = env!("CARGO_PKG_VERSION").to_owned();
        info.description =
            format!("shared memory within this host, {} beyond: {}", far.provider, far.description);
        info.limits = near.limits.common(&far.limits);
        info.security = near.security.min(far.security);
        let all = near.capabilities & far.capabilities | far.capabilities & OF_THE_DEVICE;
        info.capabilities = all;
        if !self.far.pools_receives() {
            // Those of a device are its own, and none for shared memory.
            info.capabilities -= Capabilities::SHARED_RECEIVES;
            info.limits.shared_depth = 0;
        }
        let scopes = [near.atomic_scope, far.atomic_scope];
        if scopes != [AtomicScope::Cpu; 2] {
            info.capabilities -= Capabilities::ATOMIC;
            info.atomic_scope = AtomicScope::Fabric;
            let why = format!(
                "none: those of {} are the device's, those of shared memory the processor's, and not atomic beside each other",
                far.provider
            );
            info.details.push(("atomics".to_owned(), why));
        }
        info
    }

    fn join(&self, far: Device) -> Device {
        let state = self.near().and_then(|near| far.state.map(|far| self.joined(&near, &far)));
        Device { name: far.name, state }
    }
}

fn unusable(reason: &str, remedy: &str) -> Unusable {
    Unusable { reason: reason.to_owned(), remedy: remedy.to_owned() }
}

impl Provider for AutoProvider {
    type Domain = AutoDomain;

    fn name(&self) -> &'static str {
        NAME
    }

    fn devices(&self) -> Vec<Device> {
        self.far.devices().into_iter().map(|far| self.join(far)).collect()
    }

    fn open(
        &self,
        info: &Info,
        attr: &DomainAttr,
        events: Arc<dyn EventSink>,
    ) -> Result<AutoDomain> {
        let gone = |what: String| Error::NoProvider(Failure::new("open domain", what).of(NAME));
        let near = self.near().map_err(|why| gone(format!("shm: {why}")))?;
        let named = self.far.devices().into_iter().find(|device| device.name == info.device);
        let far = named.and_then(|device| device.state.ok());
        let name = self.far.name();
        let far = far.ok_or_else(|| gone(format!("{name}:{} is there no more", info.device)))?;
        let withdrawn = WITHDRAWN - info.capabilities;
        AutoDomain::open((&self.near, &near), (&*self.far, &far), withdrawn, attr, events)
    }
}
