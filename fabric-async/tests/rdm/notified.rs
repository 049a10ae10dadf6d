//! Writes with immediate data, and their notifications.

use fabric::{Access, Region};
use fabric_async::Error;
use fabric_async::rdm::WriteNotification;
use fabric_rdm::matching::Pattern;
use fabric_rdm::{Kind, RdmAttr};
use futures_util::future::{join, join_all};
use futures_util::{FutureExt, StreamExt};

use crate::rig::{Pair, everywhere, pair, pair_with};

/// Memory that peers write to.
fn memory(it: &Pair) -> Region {
    it.b.node().domain().alloc(4096, Access::ALL).unwrap()
}

#[test]
fn a_notification_comes_in_its_order_with_its_bytes() {
    everywhere(|provider| async move {
        let it = pair(provider);
        let memory = memory(&it);
        for round in 0..20_u32 {
            let at = memory.remote().at(u64::from(round) * 8);
            let bytes = u64::from(round).to_ne_bytes();
            drop(it.a.write_notify(it.to_b, it.buffer(&bytes), at, round).await.unwrap());
            drop(it.a.send(it.to_b, it.buffer(b"behind it")).await.unwrap());
            // The message says that the write is there.
            drop(it.b.recv(Pattern::untagged(), it.inbox(16)).await.unwrap());
            let next = it.b.notified().now_or_never().expect("it is before the message").unwrap();
            assert_eq!(next, WriteNotification { peer: it.to_a, immediate: round, len: 8 });
            assert_eq!(memory.get::<u64>(round as usize * 8).unwrap(), u64::from(round));
        }
        assert!(it.b.notified().now_or_never().is_none());
        assert_eq!(it.b.counter(Kind::RecvWrite).unwrap().successes(), 20);
        it.gives_all_back().await;
    });
}

#[test]
fn writes_wait_for_places_until_notifications_are_taken() {
    everywhere(|provider| async move {
        let mut attr = RdmAttr::default();
        attr.window.places.window = 4;
        let it = pair_with(provider, &attr);
        let memory = memory(&it);
        // One that waited and left takes none.
        assert!(it.b.notified().now_or_never().is_none());
        let writes = (0..50).map(|number| {
            it.a.write_notify(it.to_b, it.buffer(b"8 bytes!"), memory.remote().at(0), number)
        });
        let taken = async {
            let all: Vec<_> = it.b.notifications().take(50).map(Result::unwrap).collect().await;
            all.iter().map(|one| one.immediate).collect::<Vec<_>>()
        };
        let (written, taken) = join(join_all(writes), taken).await;
        assert!(written.iter().all(Result::is_ok));
        assert_eq!(taken, (0..50).collect::<Vec<_>>());
        drop(written);
        it.gives_all_back().await;
    });
}

#[test]
fn each_notification_goes_to_one_future() {
    everywhere(|provider| async move {
        let it = pair(provider);
        let memory = memory(&it);
        let watchers = join_all((0..10).map(|_| it.b.notified()));
        let writes = async {
            for number in 0..10 {
                let to = memory.remote().at(0);
                drop(it.a.write_notify(it.to_b, it.buffer(b"x"), to, number).await.unwrap());
            }
        };
        let (seen, ()) = join(watchers, writes).await;
        let mut seen: Vec<_> = seen.into_iter().map(|one| one.unwrap().immediate).collect();
        seen.sort_unstable();
        assert_eq!(seen, (0..10).collect::<Vec<_>>());
    });
}

#[test]
fn an_endpoint_notifies_itself() {
    everywhere(|provider| async move {
        let mut attr = RdmAttr::default();
        attr.window.places.window = 4;
        let it = pair_with(provider, &attr);
        let me = it.b.insert(it.b.address()).unwrap();
        let memory = memory(&it);
        let at = |offset| memory.remote().at(offset);
        let writes = (0..50).map(|number: u32| {
            it.b.write_notify(me, it.buffer(&number.to_ne_bytes()), at(0), number)
        });
        let all = it.b.notifications().take(50).map(|one| one.unwrap().immediate).collect();
        let (written, taken): (_, Vec<_>) = join(join_all(writes), all).await;
        assert!(written.iter().all(Result::is_ok));
        assert_eq!(taken, (0..50).collect::<Vec<_>>());
        assert_eq!(it.b.fetch_add(me, at(8), 5).await.unwrap(), 0);
        let read = it.b.read(me, it.inbox(16), at(0)).await.unwrap();
        assert_eq!((read[0], read[8]), (49, 5));
        drop((written, read));
        // What is refused ends it as any peer.
        let gone = memory.remote().at(0);
        memory.close().unwrap();
        let failed = it.b.write_notify(me, it.buffer(b"x"), gone, 1).await.unwrap_err();
        assert!(matches!(failed.error, Error::RemoteAccess), "{failed}");
        drop(failed);
        while it.b.down(me).unwrap().is_none() {
            it.b.next_event().await.unwrap();
        }
        it.gives_all_back().await;
    });
}
