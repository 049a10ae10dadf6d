//! Whether what an endpoint saw can have happened: a search for a time of arrival of each message.
//!
//! It is that of Wing and Gong (1993) with the memory of Lowe (2017): no state is looked at twice. So what is allowed is accepted,
//! whatever the timing.

use std::collections::HashSet;

use super::matching::Scene;
use super::record::RdmModel;
use crate::check::{Failed, Outcome};

/// States that are looked at; a program that needs more shows nothing. It takes many messages of several senders that are never seen.
const MAX_STATES: usize = 200_000;

impl RdmModel {
    /// Whether messages met receives as the contract says, at an endpoint.
    pub(in super::super) fn check_matching(&self, at: usize) -> Outcome {
        let scene = Scene::new(self, at);
        let start = scene.start();
        let (mut farthest, mut seen, mut left) =
            (start.clone(), HashSet::from([start.clone()]), vec![start]);
        while let Some(state) = left.pop() {
            if state.done == scene.moments().len() || seen.len() > MAX_STATES {
                return Ok(());
            }
            if state.done > farthest.done {
                farthest = state.clone();
            }
            for next in scene.next(&state) {
                if !seen.contains(&next) {
                    seen.insert(next.clone());
                    left.push(next);
                }
            }
        }
        let expected = format!("an order of arrivals at e{at} that explains what it saw");
        Err(Failed::new(
            expected,
            format!("at the latest, there is none for this: {}", scene.describe(&farthest)),
        ))
    }
}
