//! `fabric-conformance`: runs the conformance suite on the providers of this machine.

fn main() -> std::process::ExitCode {
    conformance::main(fabric::Catalog::builtin())
}
