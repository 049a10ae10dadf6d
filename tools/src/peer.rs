//! Which way a peer is reached: by which provider, and why not by the others.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::net::{SocketAddr, ToSocketAddrs};

use fabric::{Domain, Error, Hints, Path, Selection};
use serde::Serialize;

use crate::failure::Failure;
use crate::json;
use crate::report::{FAINT, HEAD};
use crate::table::{self, Cell};

/// A peer's address, by number or by name.
pub(crate) fn address(text: &str) -> Result<SocketAddr, String> {
    let found = text.to_socket_addrs().map_err(|error| {
        format!("{error}; it is the peer's address with its port, such as 10.0.0.7:7000")
    })?;
    found.into_iter().next().ok_or_else(|| "this name has no address".to_owned())
}

/// What a program with default hints gets, and which way its connection to the peer goes.
pub(crate) struct Route {
    peer: SocketAddr,
    selection: Selection,
    path: Path,
}

#[derive(Serialize)]
struct Found<'a> {
    peer: SocketAddr,
    /// The domain that a program with default hints gets.
    domain: Way<'a>,
    /// The way of a connection to the peer.
    path: Way<'a>,
    /// What the connection can do.
    capabilities: BTreeMap<String, bool>,
}

#[derive(Serialize)]
struct Way<'a> {
    provider: &'a str,
    device: &'a str,
    /// What is not used instead, each with the reason.
    passed_over: &'a [String],
}

impl Route {
    /// Opens a domain as the environment says, and asks it.
    ///
    /// # Errors
    /// Why there is no domain, or what is wrong with the address.
    pub(crate) fn find(peer: SocketAddr) -> Result<Self, Failure> {
        let domain = Domain::open(&Hints::default()).map_err(|error| match error {
            Error::NoProvider(_) => Failure { text: error.to_string(), code: 1 },
            error => error.into(),
        })?;
        let path = domain.path_to(peer)?;
        Ok(Route { peer, selection: domain.selection().clone(), path })
    }

    /// For people.
    pub(crate) fn report(&self, width: usize) -> String {
        let mut out = String::new();
        let Route { peer, selection, path } = self;
        let _ = writeln!(out, "{HEAD}A connection to {peer}{HEAD:#}");
        let mut rows = vec![way("would go by", path.provider, &path.device)];
        rows.extend(path.passed_over.iter().map(reason));
        rows.push(way("of the domain", selection.provider, &selection.device));
        rows.extend(selection.passed_over.iter().map(reason));
        rows.push(vec!["and can".into(), path.capabilities.names().into()]);
        table::rows(&mut out, 2, width, &rows);
        out
    }

    /// For programs.
    pub(crate) fn json(&self) -> String {
        let Route { peer, selection, path } = self;
        let found = Found {
            peer: *peer,
            domain: Way {
                provider: selection.provider,
                device: &selection.device,
                passed_over: &selection.passed_over,
            },
            path: Way {
                provider: path.provider,
                device: &path.device,
                passed_over: &path.passed_over,
            },
            capabilities: json::capabilities(path.capabilities),
        };
        json::text(&found)
    }
}

fn way(what: &str, provider: &str, device: &str) -> Vec<Cell> {
    vec![what.into(), Cell::styled(format!("{provider}:{device}"), HEAD)]
}

fn reason(reason: &String) -> Vec<Cell> {
    vec!["".into(), Cell::styled(format!("not {reason}"), FAINT)]
}
