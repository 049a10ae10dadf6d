//! The providers of a run.

use std::sync::Arc;

use fabric::Catalog;
use provider_mem::{MemProvider, NAME};

/// The setting, of providers that have it, with which they do whatever the contract permits.
const ADVERSARY: &str = "adversary";

/// The catalog, with its providers at their worst if there is a seed for that, and the reference provider if it is named.
pub(super) fn prepared(
    catalog: &Catalog,
    adversary: Option<u64>,
    named: &[String],
) -> Result<Arc<Catalog>, String> {
    let text = |error: fabric::Error| error.to_string();
    let mut catalog = catalog.clone();
    if named.iter().any(|name| name == NAME) && !catalog.names().contains(&NAME) {
        catalog = catalog.add(MemProvider::new()).map_err(text)?;
    }
    if let Some(seed) = adversary {
        let seed = seed.to_string();
        let variables = catalog.variables();
        let has = |name: &&str| {
            let variable = format!(
                "FABRIC_{}_{}",
                name.to_uppercase().replace('-', "_"),
                ADVERSARY.to_uppercase()
            );
            variables.iter().any(|known| known.name == variable)
        };
        let names: Vec<_> = catalog.names().into_iter().filter(has).collect();
        if names.is_empty() {
            return Err(format!("--adversary: no provider has the setting {ADVERSARY:?}"));
        }
        for name in names {
            catalog = catalog.configure(name, ADVERSARY, &seed).map_err(text)?;
        }
    }
    Ok(Arc::new(catalog))
}
