//! Whether memory is there before it is registered.

use std::sync::OnceLock;

use fabric_core::access::Access;
use fabric_core::error::{Error, Result, SHARED};

/// Asks the kernel whether the pages are there and as writable as the access needs.
///
/// # Errors
/// `InvalidArgument` that says what the pages are not. A kernel older than Linux 5.14 cannot be asked.
pub fn probe(addr: *mut u8, len: usize, access: Access) -> Result<()> {
    const PAGE: usize = 4096;
    if cfg!(miri) {
        // It has no madvise(2), and knows by itself what is allocated.
        return Ok(());
    }
    let write = access.contains(Access::LOCAL_WRITE);
    let advice = if write { libc::MADV_POPULATE_WRITE } else { libc::MADV_POPULATE_READ };
    let start = addr as usize & !(PAGE - 1);
    let Some(end) = (addr as usize + len).checked_next_multiple_of(PAGE) else {
        return Err(Error::invalid("register", "the range ends at the end of the address space"));
    };
    loop {
        // SAFETY: MADV_POPULATE_* faults pages in and changes no contents (madvise(2), Linux 5.14); on
        // addresses that are not mapped it fails.
        let failed = unsafe { libc::madvise(start as *mut libc::c_void, end - start, advice) } != 0;
        if !failed {
            return Ok(());
        }
        let cause = std::io::Error::last_os_error();
        match cause.raw_os_error() {
            Some(libc::EINTR | libc::EAGAIN) => {}
            // The answer for a mapping without the permission; and that of a kernel older than 5.14 to any
            // question, where the first access will show it.
            Some(libc::EINVAL) if !can_probe() => return Ok(()),
            Some(libc::ENOMEM) => {
                return Err(Error::invalid(
                    "register",
                    format!("{len} bytes at {addr:p} are not all mapped"),
                ));
            }
            Some(libc::EINVAL | libc::EFAULT | libc::EACCES | libc::EPERM) => {
                let how = if write { "writable" } else { "readable" };
                return Err(Error::invalid(
                    "register",
                    format!("{len} bytes at {addr:p} are not all {how}"),
                ));
            }
            _ => return Err(Error::system("register", SHARED, cause)),
        }
    }
}

/// Whether the kernel knows MADV_POPULATE_READ.
fn can_probe() -> bool {
    static KNOWS: OnceLock<bool> = OnceLock::new();
    *KNOWS.get_or_init(|| {
        let here = 0u8;
        let page = (&raw const here as usize & !4095) as *mut libc::c_void;
        // SAFETY: as in `probe`; the page is one of this thread's stack.
        unsafe { libc::madvise(page, 4096, libc::MADV_POPULATE_READ) == 0 }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg_attr(miri, ignore = "Miri has no madvise(2)")]
    fn pages_are_probed() {
        let unmapped = probe(0x1000 as *mut u8, 8, Access::ALL).unwrap_err().to_string();
        assert!(unmapped.contains("not all mapped"), "{unmapped}");
        // This program's code is mapped and not writable.
        let code = pages_are_probed as fn() as *mut u8;
        assert!(probe(code, 8, Access::REMOTE_READ).is_ok());
        let text = probe(code, 8, Access::LOCAL_WRITE).unwrap_err().to_string();
        assert!(text.contains("not all writable"), "{text}");
    }
}
