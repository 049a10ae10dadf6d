//! How the library is linked.

fn main() {
    // libfabric unloads providers at exit, and threads of this one may still run then (ld(1), `-z nodelete`).
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
    println!("cargo:rerun-if-changed=build.rs");
}
