//! Which device is chosen, and what is said of the others.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use fabric::{Choice, Discovered, ErrorClass, Hints, ProviderSpec};

use crate::check::check_says;
use crate::choose::anything;
use crate::prelude::*;

/// Whether it is the device under test.
fn is_target(rig: &Rig, found: &Discovered) -> bool {
    (found.provider, &found.device) == (rig.target().info().provider, &rig.target().info().device)
}

pub(super) fn filter_caps(rig: &Rig) -> Outcome {
    let catalog = rig.target().catalog();
    let all = catalog.discover_with(&Choice::Auto, &anything())?;
    // No capability more, then each in turn: some device lacks one of them, and must not pass as a part match.
    for more in [Capabilities::empty()].into_iter().chain(Capabilities::all().iter()) {
        let wanted = Capabilities::RMA | Capabilities::ATOMIC | more;
        let hints = Hints { capabilities: wanted, ..Hints::default() };
        let judged = catalog.discover_with(&Choice::Auto, &hints)?;
        check_eq!(judged.len(), all.len(), "devices listed, matching or not");
        for (plain, judged) in all.iter().zip(&judged) {
            check_eq!(judged.device, plain.device, "the device at this place of the list");
            let Ok(info) = &plain.usable else {
                check!(judged.usable.is_err(), "{} to stay unusable", plain.device);
                continue;
            };
            let lacking = wanted.difference(info.capabilities);
            match &judged.usable {
                Ok(_) => {
                    check!(lacking.is_empty(), "{} not to match without {lacking:?}", info.device)
                }
                Err(reason) => {
                    let named = !lacking.is_empty() && reason.contains(&lacking.names());
                    let device = &info.device;
                    check!(named, "{device} left out for {lacking:?}, not because {reason:?}");
                }
            }
        }
        match catalog.open_with(&rig.target().choice(), &hints) {
            Ok(domain) => {
                let has = domain.info().capabilities;
                check!(has.contains(wanted), "a domain with {wanted:?}, not with {has:?}");
            }
            Err(error) => {
                check_matches!(error, Error::NoProvider(_), "the refusal of {wanted:?}");
                let lacking = wanted.difference(rig.target().info().capabilities);
                check!(!lacking.is_empty(), "a device that has {wanted:?} to be opened");
            }
        }
    }
    Ok(())
}

pub(super) fn impossible_hint(rig: &Rig) -> Outcome {
    let catalog = rig.target().catalog();
    let hints = Hints { inject: 1 << 40, ..anything() };
    let offered = rig.target().info().limits.inject.to_string();
    let parts = ["inject", "1099511627776", &offered];
    for found in catalog.discover_with(&Choice::Auto, &hints)? {
        match &found.usable {
            Ok(info) => fail!("no device to inject 2^40 bytes", "{} matches", info.device),
            Err(reason) if is_target(rig, &found) => {
                check_says(reason, &parts, "the device under test")?;
            }
            Err(_) => {}
        }
    }
    for choice in [Choice::Auto, rig.target().choice()] {
        let error = catalog.open_with(&choice, &hints);
        let error = check_err!(error, Error::NoProvider(_), "opening with {choice}");
        check_says(&error.to_string(), &parts, choice)?;
    }
    Ok(())
}

pub(super) fn bad_address(rig: &Rig) -> Outcome {
    // Of a group, of all, of none.
    let unusable: [IpAddr; 6] = [
        Ipv4Addr::new(224, 0, 0, 1).into(),
        Ipv4Addr::new(239, 255, 1, 1).into(),
        Ipv4Addr::BROADCAST.into(),
        Ipv4Addr::UNSPECIFIED.into(),
        Ipv6Addr::UNSPECIFIED.into(),
        Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1).into(),
    ];
    let a = rig.end(rig.domain_a())?;
    for ip in unusable {
        let connected = a.connect(SocketAddr::new(ip, 9), &[]);
        let error = check_err!(connected, Error::InvalidArgument(_), "connecting to {ip}");
        check_says(&error.to_string(), &[&ip.to_string()], "connecting to it")?;
        check_eq!(a.state(), EndpointState::Idle, "state after a call that failed");
    }
    a.expect_no_event_for(Duration::from_millis(50))?;
    // It can still connect.
    let b = rig.end(rig.domain_b())?;
    rig.connect(&a, &b)?;
    a.settle(&b)?;

    // For documentation only (RFC 5737), so no interface has it.
    let foreign = IpAddr::from([203, 0, 113, 1]);
    let listening = rig.domain_a().listen(SocketAddr::new(foreign, 0));
    let error = check_err!(listening, Error::InvalidArgument(_), "listening on a foreign address");
    check_eq!(error.class(), ErrorClass::Permanent, "its class");
    let queue = rig.domain_a().completion_queue(256)?;
    let from_there = rig.domain_a().endpoint().source(foreign).build(&queue);
    let error = check_err!(from_there, Error::InvalidArgument(_), "connecting from there");
    check_says(&error.to_string(), &[&foreign.to_string()], "connecting from there")
}

pub(super) fn no_device(rig: &Rig) -> Outcome {
    let catalog = rig.target().catalog();
    let provider = rig.target().info().provider;
    let missing = "nosuchdevice0";
    let named = ProviderSpec { provider: provider.to_owned(), device: Some(missing.to_owned()) };
    let opened = catalog.open_with(&Choice::Include(vec![named]), &anything());
    let error = check_err!(opened, Error::NoProvider(_), "opening {provider}:{missing}");
    let parts = [provider, missing, &rig.target().info().device];
    check_says(&error.to_string(), &parts, missing)?;

    // Providers without a device on this machine, or that are not built in.
    let found = catalog.discover_with(&Choice::Auto, &anything())?;
    let usable = |name: &str| found.iter().any(|f| f.provider == name && f.usable.is_ok());
    for Discovered { provider, usable, .. } in found.iter().filter(|f| !usable(f.provider)) {
        let reason = usable.as_ref().err().map_or("", String::as_str);
        let opened = catalog.open_with(&Choice::only(*provider), &anything());
        let error = check_err!(opened, Error::NoProvider(_), "opening {provider}");
        check_says(&error.to_string(), &[provider, reason], provider)?;
    }
    Ok(())
}

pub(super) fn misspelt_provider(rig: &Rig) -> Outcome {
    let catalog = rig.target().catalog();
    let (provider, device) = (rig.target().info().provider, rig.target().info().device.as_str());
    for misspelt in misspellings(provider) {
        for choice in [misspelt.clone(), format!("{misspelt},{provider}"), format!("^{misspelt}")] {
            let opened = catalog.open_with(&Choice::parse(&choice)?, &anything());
            let error = check_err!(opened, Error::NoProvider(_), "opening {choice:?}");
            let parts = [&*format!("{misspelt:?}"), &format!("did you mean {provider:?}")];
            check_says(&error.to_string(), &parts, choice)?;
        }
    }
    let misspelt = format!("{device}x");
    let opened = catalog.open_with(&Choice::parse(&format!("{provider}:{misspelt}"))?, &anything());
    let text = check_err!(opened, Error::NoProvider(_), "opening {misspelt:?}").to_string();
    let parts = [&*format!("{misspelt:?}"), &format!("did you mean {device:?}")];
    check_says(&text, &parts, &misspelt)?;
    // Nothing is near to this, and a wild guess would mislead.
    let opened = catalog.open_with(&Choice::only("quaternionic"), &anything());
    let text = check_err!(opened, Error::NoProvider(_), "opening \"quaternionic\"").to_string();
    let lists = text.contains(provider) && !text.contains("did you mean");
    check!(lists, "the providers and no guess in what is said of \"quaternionic\", not {text:?}");
    Ok(())
}

/// A letter too many, and the last two letters swapped.
fn misspellings(name: &str) -> Vec<String> {
    let mut swapped: Vec<char> = name.chars().collect();
    if let [.., a, b] = &mut swapped[..] {
        std::mem::swap(a, b);
    }
    let mut misspelt = vec![format!("{name}x"), swapped.into_iter().collect()];
    misspelt.retain(|text| text != name);
    misspelt
}

pub(super) fn excluded(rig: &Rig) -> Outcome {
    let catalog = rig.target().catalog();
    let provider = rig.target().info().provider;
    let choice = Choice::parse(&format!("^{provider}"))?;
    let found = catalog.discover_with(&choice, &anything())?;
    let mut listed = false;
    for found in found.iter().filter(|found| found.provider == provider) {
        let reason = match &found.usable {
            Ok(_) => fail!("the excluded devices not to match", "{} does", found.device),
            Err(reason) => reason,
        };
        check!(reason.contains("excluded"), "a reason that says so, not {reason:?}");
        listed |= is_target(rig, found);
    }
    check!(listed, "the device under test to be listed as excluded");
    match catalog.open_with(&choice, &anything()) {
        Ok(domain) => {
            check!(domain.provider() != provider, "another provider than the excluded one")
        }
        Err(error) => {
            let text = check_matches!(error, Error::NoProvider(_), "opening {choice}").to_string();
            check!(text.contains("excluded"), "an error that says so, not {text:?}");
        }
    }
    Ok(())
}

pub(super) fn selection_is_visible(rig: &Rig) -> Outcome {
    let info = rig.target().info();
    let check_of = |choice: &Choice, passed_over: &[&str]| -> Outcome {
        let domain = rig.target().catalog().open_with(choice, &anything())?;
        let opened = (domain.provider(), domain.device());
        check_eq!(opened, (info.provider, &*info.device), "the domain");
        check_eq!(domain.info(), info, "what the domain says of its device");
        let selection = domain.selection();
        let chosen = (selection.provider, &*selection.device, &selection.choice);
        check_eq!(chosen, (info.provider, &*info.device, choice), "the selection");
        check_eq!(selection.passed_over.len(), passed_over.len(), "devices passed over");
        let choice = choice.to_string();
        let parts = [&[info.provider, &info.device, &choice], passed_over].concat();
        check_says(&selection.to_string(), &parts, "the selection")?;
        check_says(&domain.dump(), &parts, "the domain, dumped")
    };
    let choice = rig.target().choice();
    check_of(&choice, &[])?;
    let preferred = Choice::parse(&format!("{}:nosuchdevice0,{choice}", info.provider))?;
    check_of(&preferred, &["nosuchdevice0"])
}
