//! Discovery: the RDMA devices of this machine, one fabric device a port.
//!
//! [`Machine`] is all that it looks at, so that tests can make one up.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, ErrorKind};
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;

use fabric_core::datagram::MAX_DATAGRAM_SEGMENTS;
use fabric_core::info::NO_DEVICE;
use fabric_core::{AtomicScope, Capabilities, Device, Info, Security, Unusable};

use crate::chain::OWN_SEGMENTS;
use crate::error::{NAME, locks_freely, memlock, memlock_warning};
use crate::handle::{
    self, Context, DeviceAttributes, KernelVersion, Mw, Pd, PortAttributes, PortState, Transport,
};
use crate::quirks::Quirks;
use crate::sysfs::{Gid, Sysfs, is_connectable};
use crate::{ffi, loaded};

/// What libibverbs reports of a device and its ports.
type Answers = (DeviceAttributes, Vec<PortAttributes>);

/// Where discovery looks.
struct Machine {
    sysfs: Sysfs,
    /// The directory of the device files.
    dev: PathBuf,
    /// Names and addresses of this network namespace's interfaces.
    interfaces: Vec<(String, IpAddr)>,
    /// The devices that libibverbs can open.
    listed: io::Result<Vec<String>>,
    /// Whether librdmacm works.
    manager: io::Result<()>,
    query: fn(&str) -> io::Result<Answers>,
    warning: Option<String>,
    libraries: String,
    kernel: KernelVersion,
}

/// Every port of every device, the best first.
pub(crate) fn devices() -> Vec<Device> {
    if let Err(why) = may_look() {
        return vec![Device { name: NO_DEVICE.to_owned(), state: Err(why) }];
    }
    let listed = handle::device_names();
    let interfaces = if_addrs::get_if_addrs().unwrap_or_default().into_iter();
    let machine = Machine {
        sysfs: Sysfs::at("/sys"),
        dev: PathBuf::from("/dev/infiniband"),
        interfaces: interfaces
            .map(|interface| (net_device(&interface.name), interface.ip()))
            .collect(),
        // It would only fail on a machine without devices.
        manager: if listed.as_ref().is_ok_and(|names| !names.is_empty()) {
            handle::connection_manager()
        } else {
            Ok(())
        },
        listed,
        query,
        warning: memlock_warning(memlock(), locks_freely()),
        libraries: loaded::libraries(),
        kernel: handle::kernel_version(),
    };
    machine.devices()
}

/// Whether there is what a look needs: descriptors, and the libraries, which need some to be loaded.
fn may_look() -> Result<(), Unusable> {
    may_open_files().map_err(|cause| {
        unusable(
            format!("RDMA devices cannot be listed: {cause}"),
            "let the process open more files: `ulimit -n`",
        )
    })?;
    ffi::load().map_err(no_library)
}

fn no_library(cause: io::Error) -> Unusable {
    let remedy = "install it: `apt install libibverbs1 librdmacm1 ibverbs-providers`, or \
                  `dnf install libibverbs librdmacm`";
    unusable(cause.to_string(), remedy)
}

/// Whether there are descriptors for a look. libibverbs and sysfs take for absent what they cannot read, so without
/// them there would seem to be no device.
fn may_open_files() -> io::Result<()> {
    const AT_A_TIME: usize = 8;
    let files: io::Result<Vec<File>> = (0..AT_A_TIME).map(|_| File::open("/")).collect();
    files.map(drop)
}

/// The net device of an address's label: `eth0` of `eth0:1`.
fn net_device(label: &str) -> String {
    label.split(':').next().unwrap_or(label).to_owned()
}

/// The RDMA device and port of a name that [`devices`] gave.
pub(crate) fn device_and_port(name: &str) -> (&str, u8) {
    let parts = name.rsplit_once('/');
    parts.and_then(|(device, port)| Some((device, port.parse().ok()?))).unwrap_or((name, 1))
}

fn query(name: &str) -> io::Result<Answers> {
    let context = Arc::new(Context::open(name)?);
    let mut attributes = context.attributes()?;
    attributes.windows = attributes.windows
        && !lacks_windows(Pd::new(&context).and_then(|pd| Mw::new(&Arc::new(pd))));
    let ports = (1..=attributes.ports).map(|number| context.port(number)).collect::<Result<_, _>>();
    Ok((attributes, ports?))
}

/// Whether a device that says that it has memory windows has no way to make one, as its driver lacks that (bnxt_re).
fn lacks_windows<T>(made: io::Result<T>) -> bool {
    let code = made.err().as_ref().and_then(ffi::code);
    matches!(code, Some(libc::EOPNOTSUPP | libc::ENOSYS))
}

fn unusable(reason: impl Into<String>, remedy: impl Into<String>) -> Unusable {
    Unusable { reason: reason.into(), remedy: remedy.into() }
}

impl Machine {
    fn devices(&self) -> Vec<Device> {
        let mut names: BTreeSet<String> = self.sysfs.devices().into_iter().collect();
        names.extend(self.listed.iter().flatten().cloned());
        if names.is_empty() {
            return vec![Device { name: NO_DEVICE.to_owned(), state: Err(self.nothing()) }];
        }
        let mut ranked: Vec<_> = names.iter().flat_map(|name| self.ports(name)).collect();
        ranked.sort_by_key(|(active, device)| (device.state.is_err(), !active)); // stable: else by name
        ranked.into_iter().map(|(_, device)| device).collect()
    }

    fn nothing(&self) -> Unusable {
        let remedy = "load the driver of your RDMA hardware, or make a software device: `modprobe rdma_rxe \
                      && rdma link add rxe0 type rxe netdev eth0`";
        match &self.listed {
            // ENOSYS says the same: no kernel support, ibv_get_device_list(3).
            Err(error) if ffi::code(error) != Some(libc::ENOSYS) => {
                unusable(format!("RDMA devices cannot be listed: {error}"), remedy)
            }
            _ => unusable("no RDMA device", remedy),
        }
    }

    /// The ports of a device, each with whether its link is active; or the device, if it cannot be opened.
    fn ports(&self, name: &str) -> Vec<(bool, Device)> {
        let (attributes, ports) = match self.open(name) {
            Ok(answers) => answers,
            Err(why) => return vec![(false, Device { name: name.to_owned(), state: Err(why) })],
        };
        let driver = self.sysfs.driver(name);
        let quirks = Quirks::of(&attributes, self.kernel);
        let port = |(number, port): (u8, &PortAttributes)| {
            let port = Port {
                machine: self,
                device: name,
                number,
                attributes: &attributes,
                port,
                driver: match quirks.driver {
                    "" => driver.as_deref().unwrap_or_default(),
                    known => known,
                },
                quirks,
                gids: self.sysfs.gids(name, number, &port.gid_slots),
            };
            (port.is_active(), Device { name: port.name(), state: port.offer() })
        };
        (1..).zip(&ports).map(port).collect()
    }

    fn open(&self, name: &str) -> Result<Answers, Unusable> {
        let known = self.listed.iter().flatten().any(|listed| listed == name);
        let file = self.sysfs.uverbs(name);
        match file {
            _ if known => {}
            _ if !self.sysfs.has_uverbs() => {
                let reason = "the kernel module ib_uverbs is not loaded";
                return Err(unusable(reason, "`modprobe ib_uverbs`"));
            }
            Some(file) if self.dev.join(&file).exists() => {
                let remedy =
                    "install it: `apt install ibverbs-providers`, or `dnf install libibverbs`";
                return Err(unusable("libibverbs has no driver for the device", remedy));
            }
            file => {
                let file = file.as_deref().unwrap_or("uverbs*");
                return Err(self.closed(file, "ib_uverbs", &ErrorKind::NotFound.into()));
            }
        }
        let file = file.as_deref().unwrap_or("uverbs*");
        match (self.query)(name) {
            Ok((_, ports)) if ports.is_empty() => {
                Err(unusable("it has no port", "use another device"))
            }
            answers => answers.map_err(|error| self.closed(file, "ib_uverbs", &error)),
        }
    }

    /// Why a device file could not be opened.
    fn closed(&self, file: &str, module: &str, error: &io::Error) -> Unusable {
        let path = self.dev.join(file);
        let shown = path.display();
        let container = "in a container `docker run --device=/dev/infiniband`";
        // libibverbs looks for the device elsewhere then, and says that it is not there.
        let opened = File::options().read(true).write(true).open(&path);
        let denied = opened.is_err_and(|error| error.kind() == ErrorKind::PermissionDenied);
        match error.kind() {
            _ if denied || error.kind() == ErrorKind::PermissionDenied => unusable(
                format!("no permission to open {shown}"),
                format!(
                    "join the group that owns {shown}, or open it to all by a udev rule: \
                     `KERNEL==\"{}*\", MODE=\"0666\"`; {container}",
                    file.trim_end_matches(|c: char| c.is_ascii_digit() || c == '*')
                ),
            ),
            _ if !path.exists() => unusable(
                format!("there is no {shown}"),
                format!("`modprobe {module}`; {container}"),
            ),
            _ => unusable(
                format!("{shown} cannot be used: {error}"),
                "`dmesg` may say what the driver lacks",
            ),
        }
    }
}

/// A port, and all that is known of it.
struct Port<'a> {
    machine: &'a Machine,
    device: &'a str,
    number: u8,
    attributes: &'a DeviceAttributes,
    port: &'a PortAttributes,
    driver: &'a str,
    quirks: Quirks,
    gids: Vec<Gid>,
}

impl Port<'_> {
    fn name(&self) -> String {
        match self.attributes.ports {
            1 => self.device.to_owned(),
            _ => format!("{}/{}", self.device, self.number),
        }
    }

    fn is_active(&self) -> bool {
        matches!(self.port.state, PortState::Active | PortState::ActiveDefer)
    }

    fn offer(&self) -> Result<Info, Unusable> {
        self.check_transport()?;
        if let Err(error) = &self.machine.manager {
            return Err(self.machine.closed("rdma_cm", "rdma_ucm", error));
        }
        if !self.is_active() {
            return Err(self.inactive());
        }
        let addresses =
            if self.port.ethernet { self.roce_addresses()? } else { self.ipoib_addresses()? };
        Ok(self.info(addresses))
    }

    fn check_transport(&self) -> Result<(), Unusable> {
        let remedy = "use a device with InfiniBand or RoCE, or the provider tcp";
        match self.attributes.transport {
            Transport::InfiniBand => Ok(()),
            Transport::Iwarp => Err(unusable(
                "iWARP: its rules of private data, of the first message, of immediate data and of zero \
                 length differ from InfiniBand's",
                remedy,
            )),
            Transport::Other => Err(unusable("it has no reliable connected queue pairs", remedy)),
        }
    }

    /// Why the link is not active.
    fn inactive(&self) -> Unusable {
        let number = self.number;
        if let PortState::Init | PortState::Armed = self.port.state
            && !self.port.ethernet
        {
            return unusable(
                format!("port {number} waits for a subnet manager"),
                "start one (`opensm`), or look at that of the switch",
            );
        }
        let link = self.machine.sysfs.link(self.device, number);
        let reason = match link {
            Some(link) => format!("port {number} is down (link {link})"),
            None => format!("port {number} is down"),
        };
        let nets = self.nets();
        let remedy = match nets.iter().find(|net| self.machine.sysfs.is_switched_off(net)) {
            Some(net) => format!("`ip link set {net} up`"),
            None if nets.is_empty() => "connect it, and switch on the other end".to_owned(),
            None => format!("connect {}, and switch on the other end", nets.join(", ")),
        };
        unusable(reason, remedy)
    }

    /// The net devices on the port.
    fn nets(&self) -> Vec<String> {
        let of_gids: BTreeSet<_> = self.gids.iter().filter_map(|gid| gid.net.clone()).collect();
        if of_gids.is_empty() {
            self.machine.sysfs.nets(self.device, self.number)
        } else {
            of_gids.into_iter().collect()
        }
    }

    /// The addresses of the RoCE v2 GIDs, which are those of the net devices.
    fn roce_addresses(&self) -> Result<Vec<IpAddr>, Unusable> {
        let nets = self.nets();
        let net = nets.first().map_or("the net device", String::as_str);
        if !self.gids.is_empty() && !self.gids.iter().any(Gid::is_roce_v2) {
            let reason = format!("port {} has RoCE v1 only, which is not routed", self.number);
            let remedy = "enable RoCE v2 in the driver or the firmware, if the device has it";
            return Err(unusable(reason, remedy));
        }
        let gids = self.gids.iter().filter(|gid| gid.is_roce_v2());
        let addresses = distinct(gids.filter_map(Gid::address));
        if addresses.is_empty() {
            let remedy = format!("`ip addr add ADDRESS/PREFIX dev {net}`");
            return Err(unusable(format!("{net} has no IP address that RoCE can use"), remedy));
        }
        let here = |ip: &IpAddr| self.machine.interfaces.iter().any(|(_, other)| other == ip);
        let (addresses, elsewhere): (Vec<_>, Vec<_>) = addresses.into_iter().partition(here);
        match (addresses.is_empty(), elsewhere.first()) {
            (true, Some(ip)) => Err(unusable(
                format!("{ip} of {net} is not in this network namespace"),
                "run in the network namespace of the net device",
            )),
            _ => Ok(addresses),
        }
    }

    /// The addresses of the IPoIB interfaces.
    fn ipoib_addresses(&self) -> Result<Vec<IpAddr>, Unusable> {
        let nets = self.nets();
        let on_port = self.machine.interfaces.iter().filter(|(name, _)| nets.contains(name));
        let addresses = distinct(on_port.map(|(_, ip)| *ip).filter(is_connectable));
        match (addresses.is_empty(), nets.first()) {
            (false, _) => Ok(addresses),
            (true, Some(net)) => Err(unusable(
                format!("{net} has no IP address"),
                format!("`ip addr add ADDRESS/PREFIX dev {net}`"),
            )),
            (true, None) => Err(unusable(
                format!("port {} has no IPoIB interface, hence no IP address", self.number),
                "`modprobe ib_ipoib`, and give the interface an address",
            )),
        }
    }

    fn info(&self, addresses: Vec<IpAddr>) -> Info {
        let mut info = Info::new(NAME, self.name());
        info.version = env!("CARGO_PKG_VERSION").to_owned();
        info.description = self.description();
        info.addresses = addresses;
        info.capabilities = Capabilities::SEND
            | Capabilities::RMA
            | Capabilities::LIVENESS
            | Capabilities::PROGRESS_WHILE_STOPPED
            | Capabilities::LOCKS_MEMORY
            | Capabilities::PATH_SETTINGS
            | Capabilities::PORT_EVENTS
            | Capabilities::PROCESSES;
        info.capabilities.set(Capabilities::ATOMIC, self.no_atomics().is_none());
        info.capabilities.set(Capabilities::GRANTS, self.attributes.windows);
        let shares = self.quirks.shares_receives(self.attributes);
        info.capabilities.set(Capabilities::SHARED_RECEIVES, shares);
        if self.attributes.atomics_global {
            info.atomic_scope = AtomicScope::Cpu;
        }
        info.limits = self.quirks.limits(self.attributes, self.port);
        info.security = Security::Authenticated;
        if self.attributes.max_sge as usize >= MAX_DATAGRAM_SEGMENTS + OWN_SEGMENTS {
            info.capabilities |= Capabilities::DATAGRAMS;
            // A datagram is one packet (InfiniBand specification, "Unreliable Datagram").
            info.limits.datagram = self.port.mtu as usize;
        }
        info.details = self.details();
        info
    }

    fn no_atomics(&self) -> Option<&'static str> {
        if !self.attributes.atomics {
            Some("no atomics: the device has none of 64 bits")
        } else if self.attributes.max_qp_rd_atom == 0 || self.attributes.max_qp_init_rd_atom == 0 {
            Some("no atomics: the device lets none be outstanding")
        } else {
            None
        }
    }

    fn description(&self) -> String {
        let PortAttributes { lid, mtu, .. } = self.port;
        let (nets, number) = (self.nets().join(", "), self.number);
        let fabric = if self.port.ethernet {
            format!("RoCE v2 on {nets}")
        } else {
            format!("InfiniBand LID {lid} with {nets}")
        };
        let firmware = &self.attributes.firmware;
        let mut text = format!("{fabric}, port {number} active, MTU {mtu}, fw {firmware}");
        if let Some(reason) = self.no_atomics() {
            text = format!("{text}; {reason}");
        }
        text
    }

    fn details(&self) -> Vec<(String, String)> {
        let PortAttributes { lid, mtu, ethernet, .. } = *self.port;
        let DeviceAttributes { vendor_id, vendor_part_id, firmware, ports, .. } = self.attributes;
        let sysfs = &self.machine.sysfs;
        let mut details = Vec::new();
        let mut add = |name: &str, value: String| details.push((name.to_owned(), value));
        if !self.driver.is_empty() {
            add("driver", self.driver.to_owned());
        }
        if !self.machine.libraries.is_empty() {
            add("libraries", self.machine.libraries.clone());
        }
        add("hardware", format!("vendor {vendor_id:#06x}, part {vendor_part_id}, fw {firmware}"));
        add("port", format!("{} of {ports}, active", self.number));
        let layer = if ethernet { "Ethernet" } else { "InfiniBand" };
        let link = [sysfs.link(self.device, self.number), sysfs.rate(self.device, self.number)];
        let link = [Some(layer.to_owned())].into_iter().chain(link).flatten().collect::<Vec<_>>();
        add("link", link.join(", "));
        add("MTU", mtu.to_string());
        if !ethernet {
            add("LID", lid.to_string());
        }
        add("net device", self.nets().join(", "));
        for Gid { index, id, kind, net } in &self.gids {
            let net = net.as_deref().unwrap_or_default();
            add(&format!("GID {index}"), format!("{id} {kind} {net}").trim_end().to_owned());
        }
        if let Some(warning) = &self.machine.warning {
            add("warning", warning.clone());
        }
        details
    }
}

fn distinct(addresses: impl Iterator<Item = IpAddr>) -> Vec<IpAddr> {
    let mut seen = BTreeSet::new();
    addresses.filter(|ip| seen.insert(*ip)).collect()
}

#[cfg(test)]
mod tests;
