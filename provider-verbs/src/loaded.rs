//! Which libibverbs and librdmacm this process runs with. No call of theirs says so, but the names of their files do.

use std::collections::BTreeSet;
use std::fs;

/// `libibverbs.so.1.14.44.0, librdmacm.so.1.3.44.0`: rdma-core 44. Empty where `/proc/self/maps` cannot be read (proc(5)).
pub(crate) fn libraries() -> String {
    named(&fs::read_to_string("/proc/self/maps").unwrap_or_default())
}

fn named(maps: &str) -> String {
    let files = maps.lines().filter_map(|line| line.rsplit('/').next());
    let ours = |file: &&str| file.starts_with("libibverbs.so") || file.starts_with("librdmacm.so");
    let files: BTreeSet<_> = files.filter(ours).collect();
    files.into_iter().collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_libraries_of_a_process() {
        let maps = "\
7f01000-7f02000 r--p 00000000 fe:00 1 /usr/lib/x86_64-linux-gnu/librdmacm.so.1.3.44.0
7f03000-7f04000 r-xp 00001000 fe:00 2 /usr/lib/x86_64-linux-gnu/libibverbs.so.1.14.44.0
7f05000-7f06000 rw-p 00002000 fe:00 2 /usr/lib/x86_64-linux-gnu/libibverbs.so.1.14.44.0
7f07000-7f08000 r--p 00000000 fe:00 3 /usr/lib/x86_64-linux-gnu/libc.so.6
7f09000-7f0a000 rw-p 00000000 00:00 0
";
        assert_eq!(named(maps), "libibverbs.so.1.14.44.0, librdmacm.so.1.3.44.0");
    }
}
