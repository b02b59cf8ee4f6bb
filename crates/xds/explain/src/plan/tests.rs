use super::*;
use crate::subjects_of;
use pilotfish_registry::testing::{SHOP, Scene as Registries};

fn planned(change: impl FnOnce(&mut Registries)) -> (Planned, Vec<Subject>) {
    let mut scene = Registries::new();
    scene.apply(SHOP).unwrap();
    let before = scene.world();
    change(&mut scene);
    let changes = scene.settle();
    let after = scene.world();
    let subjects = subjects_of(&[&before, &after]);
    (Planned { before, after, changes, objects: 1 }, subjects)
}

fn of(change: impl FnOnce(&mut Registries)) -> Plan {
    let (planned, subjects) = planned(change);
    plan(&Translator::new(), &planned, &subjects)
}

#[test]
fn nothing_changes_where_nothing_differs() {
    let plan = of(|scene| scene.apply(SHOP).unwrap());
    assert_eq!((plan.severity, plan.proxies, plan.resources), (Severity::Nothing, 1, 0));
}

#[test]
fn a_route_changes_for_those_who_get_it_with_a_diff() {
    let rule = "apiVersion: networking.istio.io/v1\nkind: VirtualService\nmetadata: {name: web, namespace: shop}\nspec:\n  \
                hosts: [web]\n  http:\n  - timeout: 3s\n    route: [{destination: {host: web}}]\n";
    let plan = of(|scene| scene.apply(rule).unwrap());
    assert_eq!((plan.severity, plan.proxies_changed, plan.resources), (Severity::Changes, 1, 1), "{plan:#?}");
    let change = &plan.changes[0];
    assert_eq!(
        (change.section, change.name.as_str(), change.what.as_str()),
        (Section::Routes, "80", "changed")
    );
    assert!(change.diff.contains("timeout: 3s"), "{}", change.diff);
    assert!(change.made_by.contains(&"VirtualService shop/web".to_owned()), "{:?}", change.made_by);
    assert_eq!(plan.impact[0].names, ["web-0.shop"]);
}

#[test]
fn the_last_endpoint_that_goes_is_dangerous() {
    let gone = SHOP.replace("conditions: {ready: true}", "conditions: {ready: false}");
    let plan = of(|scene| scene.apply(&gone).unwrap());
    assert_eq!(plan.severity, Severity::Dangerous, "{plan:#?}");
    let dangers: Vec<&str> = plan.dangers.iter().map(|danger| danger.what.as_str()).collect();
    assert!(dangers.contains(&"web.shop.svc.cluster.local:80 loses its last endpoint"), "{dangers:?}");
}

#[test]
fn a_route_to_a_subset_that_is_not_there_is_dangerous() {
    let rule = "apiVersion: networking.istio.io/v1\nkind: VirtualService\nmetadata: {name: web, namespace: shop}\nspec:\n  \
                hosts: [web]\n  http:\n  - route: [{destination: {host: web, subset: v9}}]\n";
    let plan = of(|scene| scene.apply(rule).unwrap());
    let dangers: Vec<&str> = plan.dangers.iter().map(|danger| danger.what.as_str()).collect();
    assert_eq!(
        dangers,
        ["route 80 sends to outbound|80|v9|web.shop.svc.cluster.local, which is not there"],
        "{plan:#?}"
    );
}

#[test]
fn plaintext_that_is_allowed_again_is_dangerous() {
    let policy = |mode: &str| {
        format!(
            "apiVersion: security.istio.io/v1\nkind: PeerAuthentication\nmetadata: {{name: default, namespace: shop}}\nspec: {{mtls: {{mode: {mode}}}}}\n"
        )
    };
    let mut scene = Registries::new();
    scene.apply(SHOP).unwrap();
    scene.apply(&policy("STRICT")).unwrap();
    let before = scene.world();
    scene.apply(&policy("PERMISSIVE")).unwrap();
    let changes = scene.settle();
    let after = scene.world();
    let subjects = subjects_of(&[&before]);
    let plan = plan(&Translator::new(), &Planned { before, after, changes, objects: 1 }, &subjects);
    let dangers: Vec<&str> = plan.dangers.iter().map(|danger| danger.what.as_str()).collect();
    assert!(
        dangers.iter().any(|danger| danger.starts_with("mutual TLS is not required any more")),
        "{plan:#?}"
    );
}

#[test]
fn plan_ends_when_it_is_cancelled_wherever_it_is() {
    let rule = "apiVersion: networking.istio.io/v1\nkind: VirtualService\nmetadata: {name: web, namespace: shop}\nspec:\n  \
                hosts: [web]\n  http:\n  - timeout: 3s\n    route: [{destination: {host: web}}]\n";
    let (planned, subjects) = planned(|scene| scene.apply(rule).unwrap());
    let asked = std::cell::Cell::new(0);
    let after = |count: usize| {
        asked.set(0);
        plan_until(&Translator::new(), &planned, &subjects, &|| {
            asked.set(asked.get() + 1);
            asked.get() > count
        })
    };
    let whole = after(usize::MAX).unwrap();
    let all = asked.get();
    assert_eq!(whole, plan(&Translator::new(), &planned, &subjects));
    assert!(all > 10, "{all}");
    assert!((0..all).all(|count| after(count).is_none()));
}

#[test]
fn plan_lists_and_counts_up_to_its_bounds() {
    let hosts = |from: usize| -> String {
        let hosts: Vec<String> = (from..from + LISTED).map(|n| format!("h{n}.example.com")).collect();
        format!(
            "apiVersion: networking.istio.io/v1\nkind: ServiceEntry\nmetadata: {{name: e, namespace: shop}}\nspec: {{hosts: [{}], \
             resolution: STATIC, ports: [{{number: 1, name: tcp, protocol: TCP}}], endpoints: [{{address: 10.9.9.9}}]}}\n",
            hosts.join(", ")
        )
    };
    let plan = of(|scene| scene.apply(&hosts(0)).unwrap());
    assert!(plan.resources > LISTED && plan.truncated, "{}", plan.resources);
    assert_eq!(plan.changes.len(), LISTED);
    assert_eq!((plan.proxies_changed, plan.impact.len()), (1, 1));
}
