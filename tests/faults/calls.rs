//! Functions of C libraries that the test program defines itself: the linker takes them for the libraries' own, and they
//! pass each call on, but for the one that is to fail.

use std::collections::BTreeMap;
use std::ffi::{CStr, c_void};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether anything is counted or to fail: so that other calls cost nothing, and can be made from anywhere.
static ACTIVE: AtomicBool = AtomicBool::new(false);
static STATE: Mutex<State> =
    Mutex::new(State { made: BTreeMap::new(), fails: Vec::new(), struck: 0 });

struct State {
    /// Calls so far.
    made: BTreeMap<&'static str, usize>,
    /// The calls that are to fail.
    fails: Vec<(&'static str, usize)>,
    struck: usize,
}

fn reset(fails: Vec<(&'static str, usize)>) {
    *STATE.lock().unwrap() = State { made: BTreeMap::new(), fails, struck: 0 };
    ACTIVE.store(true, Ordering::SeqCst);
}

/// From now on calls are counted.
pub(super) fn count() {
    reset(Vec::new());
}

/// The calls that were made.
pub(super) fn counted() -> BTreeMap<&'static str, usize> {
    ACTIVE.store(false, Ordering::SeqCst);
    std::mem::take(&mut STATE.lock().unwrap().made)
}

/// Of each name, the call that comes after so many others fails.
pub(crate) fn fail(calls: &[(&'static str, usize)]) {
    reset(calls.to_vec());
}

/// Waits until this time has passed and so many calls have failed.
#[allow(dead_code)] // each test program uses its part
pub(crate) fn go_on(time: std::time::Duration, failed: usize) {
    let begun = std::time::Instant::now();
    while begun.elapsed() < time || STATE.lock().unwrap().struck < failed {
        assert!(begun.elapsed() < std::time::Duration::from_secs(60), "few calls are made");
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
}

/// No call fails any more; says how many did.
pub(crate) fn stop() -> usize {
    ACTIVE.store(false, Ordering::SeqCst);
    STATE.lock().unwrap().struck
}

/// Whether this call is the one to fail.
pub(crate) fn strikes(name: &'static str) -> bool {
    if !ACTIVE.load(Ordering::Relaxed) {
        return false;
    }
    let Ok(mut state) = STATE.lock() else { return false };
    let made = state.made.entry(name).or_default();
    let at = *made;
    *made += 1;
    let strikes = state.fails.contains(&(name, at));
    state.struck += usize::from(strikes);
    strikes
}

/// The library's own function.
pub(crate) fn next(name: &CStr) -> *mut c_void {
    // SAFETY: a name that ends with a zero.
    let found = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) };
    assert!(!found.is_null(), "{name:?} is nowhere");
    found
}

/// Defines functions of C libraries. `=> value, error`: what such a call returns when it fails, and `errno`; `after`: the
/// library's function is called all the same, as it gives something back that would be lost. `=> then`: an unsafe function
/// that is given what the library returned, and the arguments, and may change what is behind them.
///
/// A library that is loaded at run time knows nothing of them: `interposed`, which it defines too, gives their addresses.
macro_rules! interposed {
    ($(fn $name:ident($($arg:ident: $type:ty),*) -> $returned:ty => $value:expr, $error:expr $(, $how:ident)? $(=> $then:expr)?;)*) => {
    $(
        /// # Safety
        /// As of the library's.
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name($($arg: $type),*) -> $returned {
            type Call = unsafe extern "C" fn($($type),*) -> $returned;
            static NEXT: std::sync::OnceLock<Call> = std::sync::OnceLock::new();
            let next = NEXT.get_or_init(|| {
                let name = std::ffi::CString::new(stringify!($name)).unwrap();
                // SAFETY: the function has this type.
                unsafe { std::mem::transmute::<*mut std::ffi::c_void, Call>($crate::faults::next(&name)) }
            });
            // SAFETY: the caller's promise.
            let call = || unsafe { next($($arg),*) };
            if $crate::faults::strikes(stringify!($name)) {
                if false $(|| stringify!($how) == "after")? {
                    call();
                }
                // SAFETY: a place of this thread's own.
                unsafe { *libc::__errno_location() = $error };
                return $value;
            }
            let returned = call();
            let _given = ($($arg,)*);
            // SAFETY: what the library returned, and what the caller promises.
            $(unsafe { $then(returned, _given) };)?
            returned
        }
    )*
        #[allow(dead_code)] // the linker finds them itself where the library is linked
        pub(crate) fn interposed(name: &str) -> Option<*mut std::ffi::c_void> {
            $(if name == stringify!($name) {
                return Some($name as *mut std::ffi::c_void);
            })*
            None
        }
    };
}
pub(crate) use interposed;
