//! Peers that are lost, removed and revived, and their events.

use fabric_async::Error;
use fabric_async::rdm::Endpoint;
use fabric_rdm::matching::Pattern;
use fabric_rdm::{PeerEvent, RdmAttr};
use futures_util::future::{join, join_all};

use crate::rig::{eventually, everywhere, pair, pair_with};

const ANY: Pattern = Pattern::untagged();

#[test]
fn a_peer_that_goes_ends_what_is_outstanding() {
    everywhere(|provider| async move {
        let it = pair(provider);
        drop(it.a.send(it.to_b, it.buffer(b"before")).await.unwrap());
        // They wait for a receive that never comes, and for memory of theirs that is never read.
        let send = |number| {
            let len = if number % 2 == 0 { 10 } else { 200_000 };
            it.a.send(it.to_b, it.buffer(&vec![1; len])).matched()
        };
        let sends: Vec<_> = (0..10).map(send).collect();
        let directed = it.a.recv(ANY.from(it.to_b), it.inbox(64));
        let event = it.a.next_event();
        let (b, a, to_b) = (it.b, it.a, it.to_b);
        let gone = async {
            // They are under way by then.
            drop(b.claim(ANY).await.unwrap());
            drop(b);
        };
        let ended = join(join_all(sends), join(directed, event));
        let ((sends, (directed, event)), ()) = join(ended, gone).await;
        let errors: Vec<Error> = sends.into_iter().map(|sent| sent.unwrap_err().error).collect();
        assert!(matches!(errors[0], Error::Disconnected(_)), "{errors:?}");
        assert!(errors[1..].iter().all(|one| matches!(one, Error::Failed(_))), "{errors:?}");
        assert!(matches!(directed.unwrap_err().error, Error::Disconnected(_)));
        assert!(matches!(event.unwrap(), PeerEvent::Down(peer, _) if peer == to_b));
        // It stays down until it is revived.
        let failed = a.send(to_b, a.pool().alloc(8).unwrap()).await.unwrap_err();
        assert!(matches!(failed.error, Error::PeerDown(_)), "{failed}");
        assert!(a.down(to_b).unwrap().is_some());
        a.revive(to_b).unwrap();
        assert!(a.down(to_b).unwrap().is_none());
        drop(failed);
        let is_clean = || (a.operations(), a.pool().metrics().in_use) == (0, 0);
        eventually("all is given back", is_clean).await;
    });
}

#[test]
fn a_peer_that_is_removed_ends_what_waits() {
    everywhere(|provider| async move {
        let mut attr = RdmAttr::default();
        attr.window.places.window = 4;
        let it = pair_with(provider, &attr);
        // Some are posted, the others wait for room.
        let sends = join_all((0..20).map(|_| it.a.send(it.to_b, it.buffer(b"x")).matched()));
        let directed = it.a.recv(ANY.from(it.to_b), it.inbox(64));
        let remove = async {
            // A claimed message has not met a receive; one that is dropped counts as met.
            let _claimed = it.b.claim(ANY).await.unwrap();
            it.a.remove(it.to_b).unwrap();
        };
        let ((sends, directed), ()) = join(join(sends, directed), remove).await;
        assert!(sends.iter().all(|sent| sent.is_err()));
        assert!(directed.is_err());
        let failed = it.a.send(it.to_b, it.buffer(b"x")).await.unwrap_err();
        assert!(failed.to_string().contains("peer"), "{failed}");
        drop((sends, directed, failed));
        eventually("no operation is left", || it.a.operations() == 0).await;
    });
}

#[test]
fn strangers_are_events() {
    everywhere(|provider| async move {
        let mut attr = RdmAttr::default();
        attr.max_strangers = 3;
        let it = pair_with(provider, &attr);
        let stranger = Endpoint::new(it.b.node(), &RdmAttr::default()).unwrap();
        let to_b = stranger.insert(it.b.address()).unwrap();
        let (event, sent) = join(it.b.next_event(), stranger.send(to_b, it.buffer(b"who?"))).await;
        drop(sent.unwrap());
        let PeerEvent::Admitted(peer) = event.unwrap() else { panic!("another event") };
        let (buffer, info) = it.b.recv(ANY.from(peer), it.inbox(8)).await.unwrap();
        assert_eq!(buffer[..info.len], *b"who?");
        assert_eq!(it.b.address_of(peer).unwrap().identity(), stranger.address().identity());
    });
}
