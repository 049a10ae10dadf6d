//! What a case runs on.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::thread;
use std::time::{Duration, Instant};

use fabric::{
    Access, CompletionQueue, Domain, EndpointAttr, EndpointBuilder, Info, Listener,
    SharedReceiveQueue,
};

use crate::check::{Failed, Outcome};
use crate::end::{DEFAULT_TIMEOUT, End};
use crate::guarded::Guarded;
use crate::linkcontrol::{BrokenLink, LinkControl};
use crate::pattern::{Pattern, Rng};
use crate::recorded::RecordedEvents;
use crate::recorder::DomainName;
use crate::remote::Process;
use crate::remote::rdm::RdmLink;
use crate::setup::Setup;
use crate::target::{Level, Target};
use crate::usage::Usage;

/// Two domains on one device, or on devices of two hosts, and what makes connected ends of them. Made anew for every
/// case.
///
/// By convention *a* is the initiator, on this host, and *b* the peer.
#[derive(Debug)]
pub struct Rig {
    a: Domain,
    b: Domain,
    /// The way to domain b, if that is on another host.
    far: Option<RdmLink>,
    setup: Setup,
}

impl Rig {
    pub(crate) fn new(setup: Setup) -> Result<Self, Failed> {
        let (a, (b, far)) = (setup.target.open()?, setup.target.open_peer()?);
        setup.watch.add_domain("a", &a);
        setup.watch.add_domain("b", &b);
        Ok(Rig { a, b, far, setup })
    }

    /// The initiator's domain.
    pub fn domain_a(&self) -> &Domain {
        &self.a
    }

    /// The peer's domain.
    pub fn domain_b(&self) -> &Domain {
        &self.b
    }

    /// One more domain on the device of this host. The rig keeps it open until the case ends.
    ///
    /// # Errors
    /// If the provider refuses.
    #[track_caller]
    pub fn extra_domain(&self) -> Result<Domain, Failed> {
        self.secured_domain(Level::OPEN)
    }

    /// A domain on the device of this host, of this level. The rig keeps it open until the case ends.
    ///
    /// # Errors
    /// If the provider refuses.
    #[track_caller]
    pub fn secured_domain(&self, level: Level<'_>) -> Result<Domain, Failed> {
        let domain = self.setup.target.open_secured(level)?;
        let name = format!("extra {}", self.setup.watch.domains() - 1);
        self.setup.watch.add_domain(&name, &domain);
        Ok(domain)
    }

    /// A second process on this host, which serves the same device. The program must be there for it: a case that calls
    /// this says so ([`Needs::process`](crate::prelude::Needs::process)).
    ///
    /// # Errors
    /// If it cannot be started.
    #[track_caller]
    pub fn process(&self) -> Result<Process, Failed> {
        let Setup { program, factor, .. } = &self.setup;
        let Some(program) = program else {
            return Err(Failed::new("a program for the second process", "none was given"));
        };
        Process::start(program, self.target().info(), *factor)
    }

    /// Cuts the link between the two hosts, until it is mended or dropped. What is asked of the peer's host goes by
    /// another way. For cases that say so ([`Needs::cut_link`](crate::prelude::Needs::cut_link)).
    ///
    /// # Errors
    /// If it cannot be cut.
    #[track_caller]
    pub fn cut_link(&self) -> Result<BrokenLink<'_>, Failed> {
        self.link()?.cut()
    }

    /// Makes the link lose packets, until it is mended or dropped. For cases that say so
    /// ([`Needs::lossy_link`](crate::prelude::Needs::lossy_link)).
    ///
    /// # Errors
    /// If it cannot be done.
    #[track_caller]
    pub fn impair_link(&self) -> Result<BrokenLink<'_>, Failed> {
        self.link()?.impair()
    }

    #[track_caller]
    fn link(&self) -> Result<&LinkControl, Failed> {
        let link = self.setup.link.as_ref();
        link.ok_or_else(|| Failed::new("commands that break the link", "none were given"))
    }

    /// The device, and the catalog to discover and open it by; for cases about just that.
    pub fn target(&self) -> &Target {
        &self.setup.target
    }

    /// What the device offers; of two devices what both do.
    pub fn info(&self) -> &Info {
        self.setup.target.common()
    }

    /// The address of a domain to listen on and to connect from: the loopback address if its device has it (between
    /// two hosts: the one by which these know each other), else its first IPv4 address, else its first one.
    pub fn ip(&self, domain: &Domain) -> IpAddr {
        let has = &domain.info().addresses;
        let loopback = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let usual = match self.target().peer() {
            Some((peer, _)) => [peer.own_ip(), peer.addr().ip()],
            None => [loopback; 2],
        };
        let usual = usual.iter().find(|ip| has.contains(ip));
        let first = || has.iter().find(|ip| ip.is_ipv4()).or(has.first());
        usual.or_else(first).copied().unwrap_or(loopback)
    }

    /// An IPv6 address of the device that needs no scope; loopback if it has it. Between two hosts there is none:
    /// it may not lead to the other one.
    pub fn ip_v6(&self) -> Option<IpAddr> {
        if self.target().peer().is_some() {
            return None;
        }
        let usable = |ip: &&IpAddr| matches!(ip, IpAddr::V6(v6) if !v6.is_unicast_link_local());
        let mut usable: Vec<_> = self.info().addresses.iter().filter(usable).collect();
        usable.sort_by_key(|ip| !ip.is_loopback());
        usable.first().copied().copied()
    }

    /// [`ip`](Rig::ip) with port 0, to listen on a free port.
    pub fn addr(&self, domain: &Domain) -> SocketAddr {
        SocketAddr::new(self.ip(domain), 0)
    }

    /// Where nothing listens on the second side: a port that is none of the free ones that other cases get meanwhile.
    pub fn no_listener(&self) -> SocketAddr {
        SocketAddr::new(self.ip(self.domain_b()), 1)
    }

    /// Listens on a free port.
    ///
    /// # Errors
    /// If the provider refuses.
    #[track_caller]
    pub fn listen(&self, domain: &Domain) -> Result<Listener, Failed> {
        Ok(domain.listen(self.addr(domain))?)
    }

    /// A connected pair with default settings: the initiator on domain a, the peer on domain b.
    ///
    /// # Errors
    /// If it cannot be made.
    #[track_caller]
    pub fn pair(&self) -> Result<(End, End), Failed> {
        self.pair_with(|_| ())
    }

    /// A connected pair, both ends with these settings: `rig.pair_with(|attr| attr.send_depth = 4)?`.
    ///
    /// # Errors
    /// If it cannot be made.
    #[track_caller]
    pub fn pair_with(&self, settings: impl Fn(&mut EndpointAttr)) -> Result<(End, End), Failed> {
        let a = self.end_with(&self.a, &settings)?;
        let b = self.end_with(&self.b, &settings)?;
        self.connect(&a, &b)?;
        Ok((a, b))
    }

    /// A connected pair with default settings: the initiator on domain `a`, the peer on domain `b`.
    ///
    /// # Errors
    /// If it cannot be made.
    #[track_caller]
    pub fn pair_on(&self, a: &Domain, b: &Domain) -> Result<(End, End), Failed> {
        let (a, b) = (self.end(a)?, self.end(b)?);
        self.connect(&a, &b)?;
        Ok((a, b))
    }

    /// A connected pair, and memory for an operation of `len` bytes: `let (a, b, source, target) = ..`. The source, at
    /// the initiator, holds [`pattern`](Rig::pattern) 0, the target, at the peer, zeros.
    ///
    /// # Errors
    /// If it cannot be made.
    #[track_caller]
    pub fn transfer(&self, len: usize) -> Result<(End, End, Guarded, Guarded), Failed> {
        let (a, b) = self.pair()?;
        let (source, target) = (a.patterned(len, self.pattern(0))?, b.buffer(len)?);
        Ok((a, b, source, target))
    }

    /// A guarded buffer of `len` zero bytes that belongs to no end of the rig: `domain` is all that it needs.
    ///
    /// # Errors
    /// If the domain refuses.
    #[track_caller]
    pub fn buffer(&self, domain: &Domain, len: usize, access: Access) -> Result<Guarded, Failed> {
        Ok(Guarded::new(domain, len, access)?.watched(&self.setup.watch))
    }

    /// An end on `domain`, not yet connected.
    ///
    /// # Errors
    /// If it cannot be made.
    #[track_caller]
    pub fn end(&self, domain: &Domain) -> Result<End, Failed> {
        self.end_with(domain, |_| ())
    }

    /// An end with these settings, not yet connected.
    ///
    /// # Errors
    /// If it cannot be made.
    #[track_caller]
    pub fn end_with(
        &self,
        domain: &Domain,
        settings: impl FnOnce(&mut EndpointAttr),
    ) -> Result<End, Failed> {
        let mut attr = self.attr();
        settings(&mut attr);
        let cq = domain.completion_queue(attr.send_depth + attr.recv_depth)?;
        self.make_end(domain, &cq, None, attr)
    }

    /// An end that shares a completion queue, not yet connected.
    ///
    /// # Errors
    /// If it cannot be made.
    #[track_caller]
    pub fn end_on(
        &self,
        domain: &Domain,
        cq: &CompletionQueue,
        settings: impl FnOnce(&mut EndpointAttr),
    ) -> Result<End, Failed> {
        let mut attr = self.attr();
        settings(&mut attr);
        self.make_end(domain, cq, None, attr)
    }

    /// An end that takes its receives from a shared queue, not yet connected. `cq` is the completion queue of that.
    ///
    /// # Errors
    /// If it cannot be made.
    #[track_caller]
    pub fn end_sharing(
        &self,
        domain: &Domain,
        cq: &CompletionQueue,
        receives: &SharedReceiveQueue,
        settings: impl FnOnce(&mut EndpointAttr),
    ) -> Result<End, Failed> {
        let mut attr = self.attr();
        settings(&mut attr);
        self.make_end(domain, cq, Some(receives), attr)
    }

    /// The default settings, the connect time-out as the run wants it, or else stretched as all deadlines are.
    fn attr(&self) -> EndpointAttr {
        let mut attr = EndpointAttr::default();
        let timer = self.setup.connect_timeout;
        attr.connect_timeout = timer.unwrap_or_else(|| self.scaled(attr.connect_timeout));
        attr
    }

    /// Makes an endpoint without what an [`End`] has beside it; connecting may take as long as anything of that takes here.
    pub(crate) fn builder<'a>(&self, domain: &'a Domain) -> EndpointBuilder<'a> {
        domain.endpoint().connect_timeout(self.connect_timeout())
    }

    #[track_caller]
    fn make_end(
        &self,
        domain: &Domain,
        cq: &CompletionQueue,
        receives: Option<&SharedReceiveQueue>,
        attr: EndpointAttr,
    ) -> Result<End, Failed> {
        Ok(End::new(domain, cq, receives, attr, &self.setup, self.place(domain))?)
    }

    /// The way to a domain on another host.
    pub(crate) fn far(&self, domain: &Domain) -> Option<&RdmLink> {
        self.far.as_ref().filter(|_| std::ptr::eq(domain, &self.b))
    }

    /// The name of a domain. Domains have none; those of the rig are distinguished by where they are.
    fn place(&self, domain: &Domain) -> DomainName {
        match domain {
            domain if std::ptr::eq(domain, &self.a) => "a",
            domain if std::ptr::eq(domain, &self.b) => "b",
            _ => "x",
        }
    }

    /// The event queue of [`domain_a`](Rig::domain_a), [`domain_b`](Rig::domain_b) or another domain; the events
    /// that it gives go into the transcript.
    pub fn events(&self, domain: &Domain) -> RecordedEvents {
        RecordedEvents::new(domain.events(), self.place(domain), &self.setup.recorder)
    }

    /// Connects `a` to `b`; when it returns, both know that they are connected, and have no event left of it.
    ///
    /// # Errors
    /// If it does not come to stand.
    #[track_caller]
    pub fn connect(&self, a: &End, b: &End) -> Outcome {
        self.connect_at(self.ip(b.domain()), a, b)
    }

    /// As [`connect`](Rig::connect), by another address of the device.
    ///
    /// # Errors
    /// If it does not come to stand.
    #[track_caller]
    pub fn connect_at(&self, ip: IpAddr, a: &End, b: &End) -> Outcome {
        let listener = b.domain().listen(SocketAddr::new(ip, 0))?;
        a.connect(listener.local_addr(), &[])?;
        let mut request = listener.accept(Some(self.connect_timeout()))?;
        request.accept(b, &[])?;
        a.expect_connected()?;
        b.expect_connected()?;
        Ok(())
    }

    /// How long connecting may take: as any wait, and as long as its own timer runs.
    pub fn connect_timeout(&self) -> Duration {
        self.scaled(DEFAULT_TIMEOUT).max(self.attr().connect_timeout)
    }

    /// A short time in which connecting succeeds all the same: `usual`, stretched; half of what the run gives it, if that says
    /// how long it may take, as over a link that loses packets.
    pub(crate) fn brief_connect(&self, usual: Duration) -> Duration {
        self.setup.connect_timeout.map_or_else(|| self.scaled(usual), |timer| timer / 2)
    }

    /// An interval of liveness within which a peer that lives is heard: `usual`; a sixth of what the run gives connecting, if that
    /// says how long it may take: TCP waits twice as long each time that the same segment is lost (RFC 6298).
    pub(crate) fn liveness(&self, usual: Duration) -> Duration {
        self.setup.connect_timeout.map_or(usual, |timer| usual.max(timer / 6))
    }

    /// Tries a check until it succeeds, for 10 s; for what comes true without a completion that would say so.
    ///
    /// # Errors
    /// The last failure.
    pub fn eventually(&self, check: impl Fn() -> Outcome) -> Outcome {
        let until = self.deadline(DEFAULT_TIMEOUT);
        loop {
            let outcome = check();
            if outcome.is_ok() || Instant::now() >= until {
                return outcome;
            }
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// Waits until this process holds no more than it did before: not one descriptor, thread or locked byte, and less than
    /// `max_growth` bytes of `memory`, [`allocated`](Usage::allocated_bytes) or resident.
    pub(crate) fn expect_no_more(
        &self,
        before: &Usage,
        memory: fn(&Usage) -> usize,
        max_growth: usize,
    ) -> Outcome {
        // The last frames of the last connections may still be on their way.
        self.eventually(|| Usage::at_rest()?.check_no_more(before, memory, max_growth))
    }

    /// A duration, stretched by the factor of this machine; for bounds on what a case measures itself.
    pub fn scaled(&self, time: Duration) -> Duration {
        time.mul_f64(self.setup.factor)
    }

    /// The factor of this machine.
    pub(crate) fn factor(&self) -> f64 {
        self.setup.factor
    }

    /// The moment a stretched duration from now.
    pub fn deadline(&self, time: Duration) -> Instant {
        Instant::now() + self.scaled(time)
    }

    /// How often: `normal` times, or `soak` times in a soak run.
    pub fn count(&self, normal: usize, soak: usize) -> usize {
        if self.setup.soak { soak } else { normal }
    }

    /// Whether the link loses packets all the time, and with them what the other side has refused
    /// ([`End::is_refusal`](crate::prelude::End::is_refusal)).
    pub(crate) fn is_lossy(&self) -> bool {
        self.setup.lossy
    }

    /// So much of what only takes its time: `amount`, or an eighth of it over a link that loses packets, where each that
    /// is lost holds up for a tenth of a second.
    pub fn bulk(&self, amount: usize) -> usize {
        let loses = self.is_lossy() || self.setup.connect_timeout.is_some();
        if loses { amount.div_ceil(8) } else { amount }
    }

    /// Random numbers, the same for this case whenever the seed is the same.
    pub fn rng(&self) -> Rng {
        Rng::named(self.setup.seed, &self.setup.id)
    }

    /// The payload pattern number `index` of this case.
    pub fn pattern(&self, index: usize) -> Pattern {
        let mut rng = self.rng();
        Pattern::new(rng.next_u64().wrapping_add(index as u64))
    }

    /// Names something on a domain that is no endpoint of the provider's.
    pub(crate) fn name_other(&self, domain: &Domain) -> String {
        self.setup.recorder.add_other(self.place(domain))
    }

    /// Has the transcript say that something ended, in a sequence without order.
    pub(crate) fn record(&self, sequence: String, text: String) {
        self.setup.recorder.ended(sequence, text);
    }

    /// What the process held when the run began, in a rig like this one that did nothing; none if this case runs
    /// without others.
    pub(crate) fn usage_at_start(&self) -> Option<&Usage> {
        self.setup.start.as_ref()
    }

    /// Where everything the rig made stands, as text.
    pub fn dump(&self) -> String {
        self.setup.watch.dump()
    }
}
