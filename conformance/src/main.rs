//! `fabric-conformance`: runs the conformance suite on the providers of this machine.

mod program;

fn main() -> std::process::ExitCode {
    program::main()
}
