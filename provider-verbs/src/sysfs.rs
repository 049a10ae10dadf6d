//! What the kernel shows of RDMA devices in sysfs and libibverbs does not: GIDs with type and net device,
//! drivers, device files, and the net devices beneath.
//!
//! The kernel's Documentation/ABI/stable/sysfs-class-infiniband names the files. Whatever cannot be read is
//! taken as absent: devices come and go, and an empty slot of the GID table gives EINVAL.

use std::fs::{self, File};
use std::io::Read;
use std::net::{IpAddr, Ipv6Addr};
use std::path::{Path, PathBuf};

/// A sysfs; tests make their own.
pub(crate) struct Sysfs {
    root: PathBuf,
}

/// An entry of a port's GID table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Gid {
    pub(crate) index: u32,
    pub(crate) id: Ipv6Addr,
    /// As the kernel writes it: `IB/RoCE v1` or `RoCE v2`.
    pub(crate) kind: String,
    /// The net device, on RoCE.
    pub(crate) net: Option<String>,
}

impl Gid {
    /// Routable RoCE, over UDP.
    pub(crate) fn is_roce_v2(&self) -> bool {
        self.kind == "RoCE v2"
    }

    /// The IP address it is made from, if connections can be made to it.
    pub(crate) fn address(&self) -> Option<IpAddr> {
        Some(self.id.to_canonical()).filter(is_connectable)
    }
}

/// Not for link-local addresses, which mean nothing without their scope, and for loopback, which no RDMA
/// device serves.
pub(crate) fn is_connectable(ip: &IpAddr) -> bool {
    let local = match ip {
        IpAddr::V4(ip) => ip.is_link_local(),
        IpAddr::V6(ip) => ip.is_unicast_link_local(),
    };
    !local && !ip.is_loopback() && !ip.is_unspecified()
}

impl Sysfs {
    pub(crate) fn at(root: impl Into<PathBuf>) -> Self {
        Sysfs { root: root.into() }
    }

    /// The RDMA devices that the kernel has, by name.
    pub(crate) fn devices(&self) -> Vec<String> {
        entries(&self.root.join("class/infiniband"))
    }

    /// The kernel's driver of a device (`mlx5_core`); none of a virtual one.
    pub(crate) fn driver(&self, device: &str) -> Option<String> {
        let link = fs::read_link(self.device(device).join("device/driver")).ok()?;
        Some(link.file_name()?.to_string_lossy().into_owned())
    }

    /// Whether the kernel offers RDMA devices to processes: the module `ib_uverbs` is there.
    pub(crate) fn has_uverbs(&self) -> bool {
        self.root.join("class/infiniband_verbs/abi_version").exists()
    }

    /// The name of the device file in `/dev/infiniband`.
    pub(crate) fn uverbs(&self, device: &str) -> Option<String> {
        let class = self.root.join("class/infiniband_verbs");
        let is = |name: &String| text(&class.join(name).join("ibdev")).as_deref() == Some(device);
        entries(&class).into_iter().find(is)
    }

    /// What is in these slots of a port's GID table, without the empty ones.
    pub(crate) fn gids(&self, device: &str, port: u8, slots: &[u32]) -> Vec<Gid> {
        let port = self.port(device, port);
        let gid = |&index: &u32| {
            let id: Ipv6Addr = text(&port.join(format!("gids/{index}")))?.parse().ok()?;
            if id.is_unspecified() {
                return None;
            }
            // Without a type: emptied meanwhile.
            let kind = text(&port.join(format!("gid_attrs/types/{index}")))?;
            let net = text(&port.join(format!("gid_attrs/ndevs/{index}")));
            Some(Gid { index, id, kind, net })
        };
        slots.iter().filter_map(gid).collect()
    }

    /// The net devices on a port, if GIDs do not have them: of Soft-RoCE its parent, else those of the hardware
    /// (IPoIB interfaces, Ethernet without any address).
    pub(crate) fn nets(&self, device: &str, port: u8) -> Vec<String> {
        let device = self.device(device);
        if let Some(parent) = text(&device.join("parent")) {
            return vec![parent];
        }
        let nets = device.join("device/net");
        let on_port = |name: &String| {
            // Counts from 0.
            let number = text(&nets.join(name).join("dev_port")).and_then(|n| n.parse().ok());
            number.unwrap_or(0) + 1 == u32::from(port)
        };
        entries(&nets).into_iter().filter(on_port).collect()
    }

    /// Whether a net device is administratively down.
    pub(crate) fn is_switched_off(&self, net: &str) -> bool {
        let flags = text(&self.root.join("class/net").join(net).join("flags")).unwrap_or_default();
        let flags = u32::from_str_radix(flags.trim_start_matches("0x"), 16);
        flags.is_ok_and(|flags| flags & 1 == 0) // IFF_UP
    }

    /// The state of a port's physical link: `LinkUp`.
    pub(crate) fn link(&self, device: &str, port: u8) -> Option<String> {
        let state = text(&self.port(device, port).join("phys_state"))?;
        Some(state.split_once(": ").map_or(state.as_str(), |(_, name)| name).to_owned())
    }

    /// A port's speed: `100 Gb/sec (4X EDR)`.
    pub(crate) fn rate(&self, device: &str, port: u8) -> Option<String> {
        text(&self.port(device, port).join("rate"))
    }

    fn device(&self, name: &str) -> PathBuf {
        self.root.join("class/infiniband").join(name)
    }

    fn port(&self, device: &str, port: u8) -> PathBuf {
        self.device(device).join(format!("ports/{port}"))
    }
}

/// A file's text, if it has any.
fn text(path: &Path) -> Option<String> {
    // One read gives it all; there may be 1,024 slots of GIDs to look at.
    let mut buffer = [0; 256];
    let len = File::open(path).ok()?.read(&mut buffer).ok()?;
    let text = std::str::from_utf8(&buffer[..len]).ok()?.trim();
    (!text.is_empty()).then(|| text.to_owned())
}

/// The names in a directory, sorted.
fn entries(path: &Path) -> Vec<String> {
    let Ok(entries) = fs::read_dir(path) else { return Vec::new() };
    let mut names: Vec<_> = entries
        .filter_map(|entry| Some(entry.ok()?.file_name().to_string_lossy().into_owned()))
        .collect();
    names.sort();
    names
}

#[cfg(test)]
pub(crate) mod fake {
    //! A sysfs made of plain files.

    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    /// Removes itself.
    pub(crate) struct Tree(PathBuf);

    impl Tree {
        pub(crate) fn new() -> Self {
            static NEXT: AtomicUsize = AtomicUsize::new(0);
            let number = NEXT.fetch_add(1, Ordering::Relaxed);
            let name = format!("fabric-verbs-sysfs-{}-{number}", std::process::id());
            let root = std::env::temp_dir().join(name);
            fs::create_dir_all(&root).unwrap();
            Tree(root)
        }

        pub(crate) fn path(&self) -> &Path {
            &self.0
        }

        pub(crate) fn sysfs(&self) -> Sysfs {
            Sysfs::at(&self.0)
        }

        pub(crate) fn write(&self, path: &str, text: &str) -> &Self {
            let path = self.0.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, format!("{text}\n")).unwrap();
            self
        }

        /// A device with its file `uverbs0`.
        pub(crate) fn device(&self, device: &str, driver: &str) -> &Self {
            self.write("class/infiniband_verbs/abi_version", "6");
            self.write("class/infiniband_verbs/uverbs0/ibdev", device);
            let path = self.0.join("class/infiniband").join(device);
            fs::create_dir_all(path.join("device")).unwrap();
            if !driver.is_empty() {
                let driver = Path::new("../../../bus/pci/drivers").join(driver);
                std::os::unix::fs::symlink(driver, path.join("device/driver")).unwrap();
            }
            self
        }

        pub(crate) fn gid(&self, port: &str, index: u32, id: &str, kind: &str, net: &str) -> &Self {
            let port = format!("class/infiniband/{port}");
            self.write(&format!("{port}/gids/{index}"), id);
            if kind.is_empty() {
                // Reading it fails, as an empty slot does.
                fs::create_dir_all(self.0.join(format!("{port}/gid_attrs/types/{index}"))).unwrap();
                return self;
            }
            self.write(&format!("{port}/gid_attrs/types/{index}"), kind);
            self.write(&format!("{port}/gid_attrs/ndevs/{index}"), net)
        }

        pub(crate) fn net(&self, name: &str, flags: &str) -> &Self {
            self.write(&format!("class/net/{name}/flags"), flags)
        }
    }

    impl Drop for Tree {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::fake::Tree;
    use super::*;

    #[test]
    fn the_gid_table_has_holes() {
        let tree = Tree::new();
        let port = "mlx5_0/ports/1";
        tree.gid(port, 0, "fe80:0000:0000:0000:0a00:27ff:fe00:0001", "IB/RoCE v1", "eth0");
        tree.gid(port, 2, "0000:0000:0000:0000:0000:0000:0000:0000", "", "");
        tree.gid(port, 3, "2001:0db8:0000:0000:0000:0000:0000:0001", "", "");
        tree.gid(port, 10, "0000:0000:0000:0000:0000:ffff:0a4d:0001", "RoCE v2", "eth0.5");
        let slots: Vec<_> = (0..16).collect();
        let gids = tree.sysfs().gids("mlx5_0", 1, &slots);
        assert_eq!(gids.iter().map(|gid| gid.index).collect::<Vec<_>>(), [0, 10]);
        assert!(!gids[0].is_roce_v2() && gids[1].is_roce_v2());
        assert_eq!(gids[0].address(), None);
        assert_eq!(gids[1].address(), Some([10, 77, 0, 1].into()));
        assert_eq!(gids[1].net.as_deref(), Some("eth0.5"));
        assert_eq!(tree.sysfs().gids("mlx5_0", 2, &slots), []);
        assert_eq!(tree.sysfs().gids("mlx5_0", 1, &[10]), gids[1..]);
    }

    #[test]
    fn addresses_that_no_connection_can_use() {
        let address = |id: &str| {
            Gid { index: 0, id: id.parse().unwrap(), kind: String::new(), net: None }.address()
        };
        for id in ["fe80::1", "::1", "::ffff:127.0.0.1", "::ffff:169.254.0.9", "::"] {
            assert_eq!(address(id), None, "{id}");
        }
        for id in ["2001:db8::1", "fd00::1"] {
            assert_eq!(address(id), Some(id.parse().unwrap()));
        }
    }

    #[test]
    fn net_devices_belong_to_ports() {
        let tree = Tree::new();
        tree.device("mlx4_0", "mlx4_core");
        tree.write("class/infiniband/mlx4_0/device/net/ib0/dev_port", "0");
        tree.write("class/infiniband/mlx4_0/device/net/ib1/dev_port", "1");
        tree.write("class/infiniband/rxe0/parent", "eth0");
        let sysfs = tree.sysfs();
        assert_eq!(sysfs.nets("mlx4_0", 1), ["ib0"]);
        assert_eq!(sysfs.nets("mlx4_0", 2), ["ib1"]);
        assert_eq!(sysfs.nets("rxe0", 1), ["eth0"]);
        assert_eq!(sysfs.driver("mlx4_0").as_deref(), Some("mlx4_core"));
        assert_eq!(sysfs.driver("rxe0"), None);
        assert_eq!(sysfs.uverbs("mlx4_0").as_deref(), Some("uverbs0"));
        assert_eq!(sysfs.uverbs("rxe0"), None);
        assert_eq!(sysfs.devices(), ["mlx4_0", "rxe0"]);
    }

    #[test]
    fn net_devices_are_switched_on_and_off() {
        let tree = Tree::new();
        tree.net("eth0", "0x1003").net("eth1", "0x1002");
        let off = |name| tree.sysfs().is_switched_off(name);
        assert!(off("eth1") && !off("eth0") && !off("absent0"));
    }

    #[test]
    fn links_without_their_numbers() {
        let tree = Tree::new();
        tree.write("class/infiniband/rxe0/ports/1/phys_state", "5: LinkUp");
        tree.write("class/infiniband/rxe0/ports/1/rate", "10 Gb/sec (1X FDR10)");
        assert_eq!(tree.sysfs().link("rxe0", 1).as_deref(), Some("LinkUp"));
        assert_eq!(tree.sysfs().link("rxe0", 2), None);
        assert_eq!(tree.sysfs().rate("rxe0", 1).as_deref(), Some("10 Gb/sec (1X FDR10)"));
    }
}
