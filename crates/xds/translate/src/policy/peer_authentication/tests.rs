use super::*;
use crate::testing::{aged, evaluate, labels, object, world_of};
use pilotfish_config::WorkloadSelector;
use pilotfish_model::Object;
use std::sync::Arc;

fn mtls(mode: MutualTlsMode) -> Option<MutualTls> {
    Some(MutualTls { mode })
}

fn policy(mode: Option<MutualTls>) -> PeerAuthentication {
    PeerAuthentication { mtls: mode, ..Default::default() }
}

fn selecting(app: &str, mode: Option<MutualTls>, ports: &[(u32, MutualTlsMode)]) -> PeerAuthentication {
    PeerAuthentication {
        selector: Some(WorkloadSelector { match_labels: (&*labels(&[("app", app)])).into() }),
        mtls: mode,
        port_level_mtls: ports.iter().map(|(port, mode)| (*port, MutualTls { mode: *mode })).collect(),
        ..Default::default()
    }
}

fn of(objects: Vec<Object>, namespace: &str) -> Arc<NamespaceMtls> {
    evaluate(&world_of(objects), &PeerAuthenticationsOf(namespace.into()))
}

#[test]
fn levels_override_each_other() {
    use MtlsMode::{Disable, Permissive, Strict};
    type Row = (Option<MutualTlsMode>, Option<MutualTlsMode>, MtlsMode, Option<MtlsMode>);
    #[rustfmt::skip]
    let table: &[Row] = &[
        (None, None, Permissive, None),
        (Some(MutualTlsMode::Strict), None, Strict, Some(Strict)),
        (Some(MutualTlsMode::Unset), None, Permissive, Some(Permissive)),
        (Some(MutualTlsMode::Strict), Some(MutualTlsMode::Disable), Disable, Some(Disable)),
        (Some(MutualTlsMode::Strict), Some(MutualTlsMode::Unset), Strict, Some(Strict)),
        (None, Some(MutualTlsMode::Unset), Permissive, Some(Permissive)),
    ];
    for (mesh, own, mode, stated) in table {
        let mut objects = Vec::new();
        objects.extend(mesh.map(|mode| object("istio-system", "mesh", policy(mtls(mode)))));
        objects.extend(own.map(|mode| object("shop", "own", policy(mtls(mode)))));
        let got = of(objects, "shop");
        assert_eq!((got.mode, got.stated), (*mode, *stated), "{mesh:?} {own:?}");
    }
}

#[test]
fn a_workload_policy_has_ports() {
    let objects = vec![
        object("shop", "all", policy(mtls(MutualTlsMode::Strict))),
        object(
            "shop",
            "web",
            selecting("web", None, &[(80, MutualTlsMode::Disable), (81, MutualTlsMode::Unset)]),
        ),
        object("istio-system", "ignored", selecting("db", mtls(MutualTlsMode::Disable), &[])),
    ];
    let shop = of(objects, "shop");
    let web = labels(&[("app", "web"), ("version", "v1")]);
    assert_eq!(shop.port(&web, 80), MtlsMode::Disable);
    assert_eq!(shop.port(&web, 81), MtlsMode::Strict);
    assert_eq!(shop.port(&web, 82), MtlsMode::Strict);
    let whole = shop.workload(&web);
    assert_eq!((whole.mode, whole.port(80)), (MtlsMode::Strict, MtlsMode::Disable));
    assert_eq!(shop.port(&labels(&[("app", "db")]), 80), MtlsMode::Strict);
    assert_eq!(shop.provenance_of(&web).len(), 2);
}

#[test]
fn the_oldest_policy_of_a_level_counts() {
    let objects = vec![
        aged("shop", "a", 20, policy(mtls(MutualTlsMode::Strict))),
        aged("shop", "b", 10, policy(mtls(MutualTlsMode::Disable))),
        aged("shop", "c", 20, selecting("web", mtls(MutualTlsMode::Permissive), &[])),
        aged("shop", "d", 10, selecting("web", mtls(MutualTlsMode::Strict), &[])),
    ];
    let shop = of(objects, "shop");
    assert_eq!(shop.mode, MtlsMode::Disable);
    assert_eq!(shop.workload(&labels(&[("app", "web")])).mode, MtlsMode::Strict);
}

#[test]
fn all_give_way_to_a_policy_of_which_is_not_known_for_whom_it_is() {
    let closed = || PeerAuthentication { closed: true, ..Default::default() };
    for namespace in ["shop", "istio-system"] {
        let objects = vec![
            object("shop", "all", policy(mtls(MutualTlsMode::Permissive))),
            object(
                "shop",
                "web",
                selecting("web", mtls(MutualTlsMode::Permissive), &[(80, MutualTlsMode::Disable)]),
            ),
            aged(namespace, "closed", 7, closed()),
        ];
        let shop = of(objects, "shop");
        assert_eq!((shop.mode, shop.stated), (MtlsMode::Strict, Some(MtlsMode::Strict)));
        assert_eq!(shop.port(&labels(&[("app", "web")]), 80), MtlsMode::Strict);
        assert_eq!(shop.provenance.len(), 1);
    }
}
