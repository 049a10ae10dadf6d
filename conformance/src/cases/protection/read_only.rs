//! Grants of memory that is registered for reads alone.

use fabric::Region;

use super::grants::{PART, REGION, is_refused, kinds};
use crate::prelude::*;
use crate::sys::{Pages, Protection, page_size};

/// Rights that peers can have, and combinations.
const RIGHTS: [Access; 6] = [
    Access::REMOTE_READ,
    Access::REMOTE_WRITE,
    Access::REMOTE_ATOMIC,
    Access::REMOTE_READ.union(Access::REMOTE_WRITE),
    Access::REMOTE_READ.union(Access::REMOTE_ATOMIC),
    Access::REMOTE,
];

/// Every right but those that the region has is refused, by the same error.
#[track_caller]
fn lacks_all_others(b: &End, region: &Region) -> Outcome {
    for access in RIGHTS {
        if !region.access().contains(access) {
            let refused = region.grant(b, PART, access);
            let what = format!("a grant of {access:?}");
            check_err!(refused, Error::InvalidArgument(_), "{what}");
        }
    }
    Ok(())
}

pub(super) fn grant_of_reads(rig: &Rig) -> Outcome {
    for kind in 0..3 {
        let (a, b) = rig.pair()?;
        let memory = b.buffer_with(REGION.end + 1024, Access::LOCAL_WRITE)?;
        memory.put_pattern(.., rig.pattern(0))?;
        let region = memory.register(b.domain(), REGION, Access::REMOTE_READ)?;
        let private = memory.register(b.domain(), REGION, Access::empty())?;
        lacks_all_others(&b, &region)?;
        lacks_all_others(&b, &private)?;
        let grant = region.grant(&b, PART, Access::REMOTE_READ)?;
        // The one grants what the other registration of the same bytes lacks.
        lacks_all_others(&b, &private)?;

        let local = a.buffer(PART.len())?;
        a.read(&local, grant.remote().at(0), 1)?;
        a.expect_ok(1)?;
        let part = REGION.start + PART.start..REGION.start + PART.end;
        check_bytes!(local.bytes(..)?, memory.bytes(part)?, "what was read");
        a.settle(&b)?;

        local.fill(0)?;
        let at = if kind == 0 {
            grant.revoke()?;
            grant.remote().at(8)
        } else {
            forged_access(&grant.remote(), Access::ALL).at(8)
        };
        is_refused(rig, (&a, &b), kinds(&local, at)[kind].1, &memory)?;
        local.check_filled(.., 0)?;
    }
    Ok(())
}

pub(super) fn grant_of_read_only_pages(rig: &Rig) -> Outcome {
    let (a, b) = rig.pair()?;
    let page = page_size();
    let pages = Pages::map(2 * page, Protection::Read)?;
    let region = pages.register(b.domain(), Access::REMOTE_READ)?;
    let local = a.buffer(page)?;
    match region.grant(&b, page / 2..page / 2 + page, Access::REMOTE_READ) {
        Ok(grant) => {
            local.fill(7)?;
            a.read(&local, grant.remote().at(0), 1)?;
            a.expect_ok(1)?;
            local.check_filled(.., 0)?;
        }
        Err(Error::InvalidArgument(_)) => {}
        Err(error) => return Err(error.into()),
    }
    // The region's own key goes on.
    local.fill(7)?;
    a.read(&local, region.remote().at(0), 2)?;
    a.expect_ok(2)?;
    local.check_filled(.., 0)?;
    region.close()?;
    a.settle(&b)
}
