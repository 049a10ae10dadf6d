//! The workspace.

use std::path::Path;

/// The root of the workspace that this program was built from.
pub(crate) fn workspace() -> &'static Path {
    // `CARGO_MANIFEST_DIR` is a folder of it.
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap_or(Path::new(""))
}
