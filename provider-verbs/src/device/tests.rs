//! Discovery on machines made up of plain files and numbers.

use super::*;
use crate::quirks::fake::{mlx5, roce, rxe};
use crate::sysfs::fake::Tree;

fn infiniband(state: PortState) -> PortAttributes {
    PortAttributes { mtu: 4096, lid: 5, ethernet: false, ..roce(state) }
}

/// A machine whose devices libibverbs lists and opens as `query` says.
fn machine(tree: &Tree, listed: &[&str], query: fn(&str) -> io::Result<Answers>) -> Machine {
    Machine {
        sysfs: tree.sysfs(),
        dev: tree.path().join("dev/infiniband"),
        interfaces: vec![("veth0".to_owned(), [10, 77, 0, 1].into())],
        listed: Ok(listed.iter().map(ToString::to_string).collect()),
        manager: Ok(()),
        query,
        warning: None,
        libraries: String::new(),
        kernel: (6, 1),
    }
}

fn one(machine: &Machine) -> Result<Info, Unusable> {
    let devices = machine.devices();
    assert_eq!(devices.len(), 1, "{devices:?}");
    devices[0].state.clone()
}

/// The device is unusable, and reason and remedy have these words in them.
fn says(state: Result<Info, Unusable>, reason: &str, remedy: &str) {
    let why = state.unwrap_err();
    assert!(why.reason.contains(reason) && why.remedy.contains(remedy), "{why}");
}

const V4: &str = "0000:0000:0000:0000:0000:ffff:0a4d:0001";
const LINK_LOCAL: &str = "fe80:0000:0000:0000:0a00:27ff:fe00:0001";

/// `rxe0` on `veth0` as Linux 6.1 shows it.
fn rxe_tree() -> Tree {
    let tree = Tree::new();
    tree.device("rxe0", "").write("class/infiniband/rxe0/parent", "veth0");
    tree.write("class/infiniband/rxe0/ports/1/phys_state", "5: LinkUp");
    tree.write("class/infiniband/rxe0/ports/1/rate", "10 Gb/sec (1X FDR10)");
    tree.gid("rxe0/ports/1", 0, LINK_LOCAL, "RoCE v2", "veth0");
    tree.gid("rxe0/ports/1", 1, V4, "RoCE v2", "veth0");
    tree.gid("rxe0/ports/1", 2, "0000:0000:0000:0000:0000:0000:0000:0000", "", "");
    tree.net("veth0", "0x1003");
    tree
}

#[test]
fn soft_roce() {
    let tree = rxe_tree();
    let query = |_: &str| {
        Ok((rxe(), vec![PortAttributes { max_msg_sz: 8 << 20, ..roce(PortState::Active) }]))
    };
    let mut machine = machine(&tree, &["rxe0"], query);
    machine.warning = memlock_warning(Some(64 << 10), false);
    let info = one(&machine).unwrap();
    assert_eq!((info.provider, info.device.as_str()), ("verbs", "rxe0"));
    assert_eq!(info.description, "RoCE v2 on veth0, port 1 active, MTU 1024, fw 0.0.0");
    assert_eq!(info.addresses, [IpAddr::from([10, 77, 0, 1])]);
    assert!(info.capabilities.contains(Capabilities::ATOMIC | Capabilities::LOCKS_MEMORY));
    assert!(!info.capabilities.contains(Capabilities::UNIQUE_KEYS));
    assert!(info.capabilities.contains(Capabilities::SHARED_RECEIVES));
    machine.kernel = (6, 12);
    let newer = one(&machine).unwrap();
    assert!(!newer.capabilities.contains(Capabilities::SHARED_RECEIVES));
    assert_eq!(info.atomic_scope, AtomicScope::Fabric);
    assert_eq!(info.limits.message, 8 << 20);
    let detail = |name| info.details.iter().find(|d| d.0 == name).map(|d| d.1.as_str());
    assert_eq!(detail("driver"), Some("rdma_rxe"));
    assert_eq!(detail("port"), Some("1 of 1, active"));
    assert_eq!(detail("link"), Some("Ethernet, LinkUp, 10 Gb/sec (1X FDR10)"));
    assert_eq!(detail("GID 1"), Some("::ffff:10.77.0.1 RoCE v2 veth0"));
    assert_eq!(detail("GID 2"), None);
    assert!(detail("warning").unwrap().contains("RLIMIT_MEMLOCK is 64 KiB"), "{info:?}");
}

#[test]
fn of_two_ports_the_active_one_is_first() {
    let tree = Tree::new();
    tree.device("mlx5_0", "mlx5_core");
    tree.write("class/infiniband/mlx5_0/device/net/eth0/dev_port", "0");
    tree.write("class/infiniband/mlx5_0/ports/1/phys_state", "3: Disabled");
    tree.gid("mlx5_0/ports/2", 3, V4, "RoCE v2", "eth1.7");
    tree.net("eth0", "0x1002").net("eth1.7", "0x1003");
    let query = |_: &str| {
        let ports = vec![roce(PortState::Down), roce(PortState::Active)];
        Ok((DeviceAttributes { ports: 2, ..mlx5() }, ports))
    };
    let devices = machine(&tree, &["mlx5_0"], query).devices();
    let names: Vec<_> = devices.iter().map(|device| device.name.as_str()).collect();
    assert_eq!(names, ["mlx5_0/2", "mlx5_0/1"]);
    let info = devices[0].state.as_ref().unwrap();
    assert_eq!(info.device, "mlx5_0/2");
    assert_eq!(info.description, "RoCE v2 on eth1.7, port 2 active, MTU 1024, fw 16.35.2000");
    says(devices[1].state.clone(), "port 1 is down (link Disabled)", "`ip link set eth0 up`");
    assert_eq!(device_and_port("mlx5_0/2"), ("mlx5_0", 2));
    assert_eq!(device_and_port("rxe0"), ("rxe0", 1));
    assert_eq!((net_device("ib0:1"), net_device("ib0")), ("ib0".to_owned(), "ib0".to_owned()));
}

#[test]
fn infiniband_has_the_addresses_of_ipoib() {
    let tree = Tree::new();
    tree.device("mlx5_0", "mlx5_core");
    tree.write("class/infiniband/mlx5_0/device/net/ib0/dev_port", "0");
    tree.gid("mlx5_0/ports/1", 0, LINK_LOCAL, "IB/RoCE v1", "");
    let active = |_: &str| Ok((mlx5(), vec![infiniband(PortState::Active)]));
    let mut machine = machine(&tree, &["mlx5_0"], active);
    says(one(&machine), "ib0 has no IP address", "`ip addr add ADDRESS/PREFIX dev ib0`");

    let interfaces = [("eth0", "192.0.2.1"), ("ib0", "10.1.0.1"), ("ib0", "fe80::1")];
    machine.interfaces =
        interfaces.map(|(name, ip)| (name.to_owned(), ip.parse().unwrap())).to_vec();
    let info = one(&machine).unwrap();
    assert_eq!(info.addresses, [IpAddr::from([10, 1, 0, 1])]);
    let text = "InfiniBand LID 5 with ib0, port 1 active, MTU 4096, fw 16.35.2000";
    assert_eq!(info.description, text);
    assert!(info.details.contains(&("LID".to_owned(), "5".to_owned())));

    machine.query = |_| Ok((mlx5(), vec![infiniband(PortState::Init)]));
    says(one(&machine), "port 1 waits for a subnet manager", "opensm");
}

#[test]
fn atomics_are_as_the_device_has_them() {
    let tree = rxe_tree();
    let with = |query| one(&machine(&tree, &["rxe0"], query)).unwrap();
    fn answer(change: fn(&mut DeviceAttributes)) -> io::Result<Answers> {
        let mut attributes = rxe();
        change(&mut attributes);
        Ok((attributes, vec![roce(PortState::Active)]))
    }
    let info = with(|_| answer(|device| device.atomics = false));
    assert!(!info.capabilities.contains(Capabilities::ATOMIC));
    assert!(info.description.ends_with("; no atomics: the device has none of 64 bits"));
    let info = with(|_| answer(|device| device.max_qp_rd_atom = 0));
    assert!(!info.capabilities.contains(Capabilities::ATOMIC));
    let info = with(|_| answer(|device| device.atomics_global = true));
    assert_eq!(info.atomic_scope, AtomicScope::Cpu);
}

#[test]
fn transports_that_do_not_do() {
    let tree = Tree::new();
    tree.device("siw0", "");
    let iwarp = |_: &str| {
        let attributes = DeviceAttributes { transport: Transport::Iwarp, ..mlx5() };
        Ok((attributes, vec![roce(PortState::Active)]))
    };
    let mut machine = machine(&tree, &["siw0"], iwarp);
    says(one(&machine), "iWARP", "provider tcp");
    machine.query = |_| {
        let attributes = DeviceAttributes { transport: Transport::Other, ..mlx5() };
        Ok((attributes, vec![roce(PortState::Active)]))
    };
    says(one(&machine), "no reliable connected queue pairs", "provider tcp");
}

#[test]
fn ports_without_a_usable_address() {
    let active = |_: &str| Ok((mlx5(), vec![roce(PortState::Active)]));
    let tree = Tree::new();
    tree.device("mlx5_0", "mlx5_core").net("eth0", "0x1003");
    tree.write("class/infiniband/mlx5_0/device/net/eth0/dev_port", "0");
    let mut machine = machine(&tree, &["mlx5_0"], active);
    says(one(&machine), "eth0 has no IP address", "`ip addr add ADDRESS/PREFIX dev eth0`");

    tree.gid("mlx5_0/ports/1", 0, V4, "IB/RoCE v1", "eth0");
    says(one(&machine), "RoCE v1 only", "RoCE v2");

    tree.gid("mlx5_0/ports/1", 1, LINK_LOCAL, "RoCE v2", "eth0");
    says(one(&machine), "eth0 has no IP address", "dev eth0`");

    tree.gid("mlx5_0/ports/1", 2, V4, "RoCE v2", "eth0");
    assert_eq!(one(&machine).unwrap().addresses.len(), 1);

    machine.interfaces.clear();
    says(one(&machine), "10.77.0.1 of eth0 is not in this network namespace", "namespace");
}

#[test]
fn links_that_are_down() {
    let tree = rxe_tree();
    let down = |_: &str| Ok((rxe(), vec![roce(PortState::Down)]));
    let machine = machine(&tree, &["rxe0"], down);
    tree.net("veth0", "0x1002");
    says(one(&machine), "port 1 is down", "`ip link set veth0 up`");
    tree.net("veth0", "0x1003");
    says(one(&machine), "port 1 is down", "connect veth0");
}

#[test]
fn no_device_at_all() {
    let tree = Tree::new();
    let mut machine = machine(&tree, &[], |_| Err(ErrorKind::NotFound.into()));
    assert_eq!(machine.devices()[0].name, "none");
    says(one(&machine), "no RDMA device", "rdma link add rxe0 type rxe netdev eth0");
    machine.listed = Err(io::Error::from_raw_os_error(libc::ENOSYS));
    says(one(&machine), "no RDMA device", "modprobe rdma_rxe");
    machine.listed = Err(io::Error::from_raw_os_error(libc::ENOMEM));
    says(one(&machine), "cannot be listed", "modprobe rdma_rxe");
}

#[test]
fn devices_that_processes_cannot_reach() {
    let tree = Tree::new();
    tree.write("class/infiniband/mlx5_0/node_type", "1: CA");
    let mut machine = machine(&tree, &[], |_| Err(ErrorKind::PermissionDenied.into()));
    says(one(&machine), "ib_uverbs is not loaded", "modprobe ib_uverbs");
    tree.device("mlx5_0", "mlx5_core");
    says(one(&machine), "there is no", "docker run --device=/dev/infiniband");
    tree.write("dev/infiniband/uverbs0", "");
    says(one(&machine), "libibverbs has no driver", "ibverbs-providers");

    machine.listed = Ok(vec!["mlx5_0".to_owned()]);
    says(one(&machine), "no permission to open", "KERNEL==\"uverbs*\", MODE=\"0666\"");
    machine.query = |_| Err(io::Error::from_raw_os_error(libc::EBUSY));
    says(one(&machine), "uverbs0 cannot be used", "dmesg");

    machine.query = |_| Ok((mlx5(), vec![roce(PortState::Active)]));
    machine.manager = Err(ErrorKind::NotFound.into());
    says(one(&machine), "/dev/infiniband/rdma_cm", "modprobe rdma_ucm");
    machine.manager = Err(io::Error::from_raw_os_error(libc::EPERM));
    says(one(&machine), "no permission to open", "docker run --device=/dev/infiniband");
}

#[test]
fn windows_that_no_driver_makes_are_none() {
    let failed = |code| Err::<(), _>(ffi::errno("ibv_alloc_mw", code).unwrap_err());
    assert!(lacks_windows(failed(libc::EOPNOTSUPP)) && lacks_windows(failed(libc::ENOSYS)));
    // For want of room there is none now.
    assert!(!lacks_windows(failed(libc::ENOMEM)) && !lacks_windows(Ok(())));
}
