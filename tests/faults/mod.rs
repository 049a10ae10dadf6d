//! Every call by which a provider asks something of the system or of a C library fails once, in turn, under a program that
//! uses all there is. The program hears of it by an error, or the provider has a way around; nothing hangs, panics or
//! stays behind, what exists beside it goes on, and afterwards all works.
//!
//! A test program names the calls ([`interposed!`]), and how to open a domain, and [`sweep`] does the rest. It declares
//! `held`, too.

#![allow(clippy::unwrap_used, clippy::panic)] // helpers of tests, which clippy does not take for tests

mod calls;
mod play;

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use fabric::{Domain, Error, Result};

#[allow(unused_imports)] // each test program uses its part
pub(crate) use calls::{fail, go_on, interposed, next, stop, strikes};
use play::{Bystander, play};

use crate::held::Held;

/// No fault may delay anything for longer.
const HANGS: Duration = Duration::from_secs(15);

static PANICS: AtomicUsize = AtomicUsize::new(0);

/// Which of so many calls of a function fail: the first eight, one in the middle, the last one.
fn tried(count: usize) -> BTreeSet<usize> {
    (0..count.min(8)).chain([count / 2, count - 1]).collect()
}

/// Tries every call. `quiet` names those that are not reported, `kept` those that leave something behind for good.
pub(crate) fn sweep(open: impl Fn() -> Result<Domain>, quiet: &[&str], kept: &[&str]) {
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        PANICS.fetch_add(1, Ordering::Relaxed);
        hook(info);
    }));
    let bystander = Bystander::new(&open().unwrap());
    // Once for what libraries keep for good, once to count.
    play(&open).unwrap();
    calls::count();
    play(&open).unwrap();
    let counted = calls::counted();
    assert!(!counted.is_empty(), "no call was interposed");
    // What goes a little later has gone.
    let mut held = Held::settled();
    for (name, count) in counted {
        for at in tried(count) {
            let start = Instant::now();
            calls::fail(&[(name, at)]);
            let ended = play(&open);
            let took = start.elapsed();
            let struck = calls::stop() > 0;
            let what = format!("{name}, call {at} of {count}");
            println!(
                "{what}: {}",
                ended.as_ref().map_or_else(ToString::to_string, |()| "nothing".into())
            );
            assert!(took < HANGS, "{what}: took {took:.1?}");
            // Whose number depends on the time it takes may be made less often.
            assert!(struck || at > 0, "{what}: was not made");
            // A waiter is woken by the thread that knows.
            assert!(!matches!(ended, Err(Error::TimedOut(_))), "{what}: nothing was reported");
            if struck && quiet.contains(&name) {
                assert!(ended.is_ok(), "{what}: {ended:?}");
            }
            assert_eq!(PANICS.load(Ordering::Relaxed), 0, "{what}: panics");
            bystander.goes_on(&what);
            if kept.contains(&name) {
                held = Held::settled();
            }
            held.is_all();
        }
    }
    play(&open).unwrap();
}
