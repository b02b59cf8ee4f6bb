use super::*;

fn day(n: u64) -> SystemTime {
    // A day in 2030: certificates hold whole seconds.
    UNIX_EPOCH + Duration::from_secs(1_900_000_000) + DAY * u32::try_from(n).unwrap()
}

fn names(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

fn fresh(of: &[&str], now: SystemTime) -> Material {
    make(None, &Need::Everything(String::new()), &names(of), &CertificateLifetimes::default(), now).unwrap()
}

fn need_at(material: &Material, now: SystemTime) -> Need {
    need(material, &names(&["a.n.svc", "127.0.0.1"]), &CertificateLifetimes::default(), now)
}

fn step(material: &Material, now: SystemTime) -> Material {
    let wanted = names(&["a.n.svc", "127.0.0.1"]);
    let need = need(material, &wanted, &CertificateLifetimes::default(), now);
    make(Some(material), &need, &wanted, &CertificateLifetimes::default(), now).unwrap()
}

#[test]
fn a_certificate_is_renewed_thirty_days_before_its_end() {
    let material = fresh(&["a.n.svc", "127.0.0.1"], day(0));
    assert_eq!(need_at(&material, day(0)), Need::Nothing);
    assert_eq!(need_at(&material, day(59)), Need::Nothing);
    assert!(matches!(need_at(&material, day(61)), Need::Certificate(why) if why.contains("expires soon")));
    assert!(matches!(need_at(&material, day(200)), Need::Certificate(why) if why.contains("is not valid")));
    let next = step(&material, day(61));
    assert_eq!(next.authorities, material.authorities);
    assert_ne!(next.certificate, material.certificate);
    assert_eq!(need_at(&next, day(61)), Need::Nothing);
}

#[test]
fn a_clock_that_is_behind_takes_a_new_certificate() {
    let material = fresh(&["a.n.svc", "127.0.0.1"], day(1));
    assert_eq!(need_at(&material, day(1) - Duration::from_secs(3000)), Need::Nothing);
    assert!(matches!(need_at(&material, day(0)), Need::Certificate(_)));
}

#[test]
fn an_authority_is_announced_long_before_it_signs() {
    let first = fresh(&["a.n.svc", "127.0.0.1"], day(0));
    // The certificate in force a year before the authority's end.
    let before = step(&first, day(3280));
    assert!(matches!(need_at(&before, day(3290)), Need::Authority(_)));
    let announced = step(&before, day(3290));
    assert_eq!(announced.certificate, before.certificate);
    assert_eq!(certificates(&announced.authorities).len(), 2);
    assert_eq!(
        need_at(&announced, day(3290)),
        Need::Nothing,
        "the old certificate is trusted by the old authority"
    );
    let signed = step(&announced, day(3345));
    assert_ne!(signed.certificate, before.certificate);
    let new_only = Material { authorities: pem_of(&certificates(&signed.authorities)[0]), ..signed.clone() };
    assert_eq!(need_at(&new_only, day(3345)), Need::Nothing, "it is signed by the new one");
    // The next round drops the oldest.
    let last = step(&signed, day(3290 + 3290));
    assert_eq!(certificates(&last.authorities).len(), 2);
    assert!(!last.authorities.contains(first.authorities.trim()));
}

#[test]
fn what_cannot_be_used_is_replaced() {
    let good = fresh(&["a.n.svc", "127.0.0.1"], day(0));
    let other = fresh(&["a.n.svc", "127.0.0.1"], day(0));
    let broken = [
        Material { authorities: String::new(), ..good.clone() },
        Material { authorities: "garbage".into(), ..good.clone() },
        Material { authority_key: "garbage".into(), ..good.clone() },
        Material { authority_key: other.authority_key.clone(), ..good.clone() },
        Material { authority_expires: day(0), ..good.clone() },
    ];
    for material in broken {
        assert!(matches!(need_at(&material, day(1)), Need::Everything(_)), "{material:?}");
        assert_eq!(need_at(&step(&material, day(1)), day(1)), Need::Nothing);
    }
    let broken = [
        Material { certificate: String::new(), ..good.clone() },
        Material { key: "garbage".into(), ..good.clone() },
        Material { key: other.key.clone(), ..good.clone() },
        Material { certificate: other.certificate.clone(), key: other.key, ..good.clone() },
    ];
    for material in broken {
        assert!(matches!(need_at(&material, day(1)), Need::Certificate(_)), "{material:?}");
        let next = step(&material, day(1));
        assert_eq!((need_at(&next, day(1)), &next.authorities), (Need::Nothing, &good.authorities));
    }
}

#[test]
fn replicas_with_different_names_agree_on_one_certificate() {
    let material = fresh(&["old.n.svc"], day(0));
    assert!(matches!(need_at(&material, day(0)), Need::Certificate(why) if why.contains("is not in it")));
    let both = step(&material, day(0));
    let wanted = names(&["old.n.svc"]);
    assert_eq!(need(&both, &wanted, &CertificateLifetimes::default(), day(0)), Need::Nothing);
    assert_eq!(need_at(&both, day(0)), Need::Nothing);
}

#[test]
fn a_name_that_is_none_is_an_error() {
    let wanted = names(&["caf\u{e9}"]);
    let made = make(None, &Need::Nothing, &wanted, &CertificateLifetimes::default(), day(0));
    assert!(matches!(made, Err(CertificateError::Name(name)) if name == "caf\u{e9}"));
}

#[test]
fn keys_are_not_shown() {
    let material = fresh(&["a.n.svc"], day(0));
    assert!(!format!("{material:?}").contains("PRIVATE"));
}
