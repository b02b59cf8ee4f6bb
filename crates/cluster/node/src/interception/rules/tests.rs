use super::*;
use pilotfish_webhook::inject::traffic::list;

fn plan(transparent: bool) -> Plan {
    let port = |text: &str| text.parse().unwrap();
    Plan {
        outbound_port: port("15001"),
        inbound_port: port("15006"),
        tunnel_port: port("15008"),
        user: 1337,
        group: 1338,
        transparent,
        mark: 1337,
        inbound: Listed::All,
        not_inbound: list("15090,15021").unwrap(),
        outbound: Listed::All,
        not_outbound: BTreeSet::new(),
        outbound_ports: BTreeSet::new(),
        not_outbound_ports: BTreeSet::new(),
        not_interfaces: BTreeSet::new(),
    }
}

const REDIRECT: &str = "\
*nat
:ISTIO_OUTPUT - [0:0]
:ISTIO_REDIRECT - [0:0]
:ISTIO_IN_REDIRECT - [0:0]
:ISTIO_INBOUND - [0:0]
-A ISTIO_REDIRECT -p tcp -j REDIRECT --to-ports 15001
-A ISTIO_IN_REDIRECT -p tcp -j REDIRECT --to-ports 15006
-A ISTIO_INBOUND -p tcp --dport 15008 -j RETURN
-A ISTIO_INBOUND -p tcp --dport 15021 -j RETURN
-A ISTIO_INBOUND -p tcp --dport 15090 -j RETURN
-A ISTIO_INBOUND -p tcp -j ISTIO_IN_REDIRECT
-A ISTIO_OUTPUT -s 127.0.0.6/32 -o lo -j RETURN
-A ISTIO_OUTPUT ! -d 127.0.0.1/32 -o lo -p tcp ! --dport 15008 -m owner --uid-owner 1337 -j ISTIO_IN_REDIRECT
-A ISTIO_OUTPUT ! -d 127.0.0.1/32 -o lo -p tcp ! --dport 15008 -m owner --gid-owner 1338 -j ISTIO_IN_REDIRECT
-A ISTIO_OUTPUT -o lo -m owner ! --uid-owner 1337 ! --gid-owner 1338 -j RETURN
-A ISTIO_OUTPUT -m owner --uid-owner 1337 -j RETURN
-A ISTIO_OUTPUT -m owner --gid-owner 1338 -j RETURN
-A ISTIO_OUTPUT -d 127.0.0.1/32 -j RETURN
-A ISTIO_OUTPUT -p tcp -j ISTIO_REDIRECT
-A OUTPUT -p tcp -j ISTIO_OUTPUT
-A PREROUTING -p tcp -j ISTIO_INBOUND
COMMIT
";

#[test]
fn everything_goes_through_envoy_but_what_is_envoys() {
    let plan = plan(false);
    assert_eq!(plan.restore(false, &plan.jumps()), REDIRECT);
    let again = plan.restore(false, &[]);
    assert!(!again.contains("-A OUTPUT") && !again.contains("-A PREROUTING"), "{again}");
}

fn rules<'a>(text: &'a str, chain: &str) -> Vec<&'a str> {
    text.lines().filter_map(|line| line.strip_prefix(&format!("-A {chain} "))).collect()
}

#[test]
fn what_is_excluded_returns_before_anything_is_taken() {
    let plan = Plan {
        inbound: "8080,9000".parse().unwrap(),
        outbound: "10.96.0.0/12,fd00::/16".parse().unwrap(),
        not_outbound: list("10.96.9.0/24,fd00:1::/32").unwrap(),
        outbound_ports: list("443").unwrap(),
        not_outbound_ports: list("3306").unwrap(),
        not_interfaces: list("net1").unwrap(),
        ..plan(false)
    };
    let text = plan.restore(false, &[]);
    let inbound = rules(&text, INBOUND);
    assert_eq!(inbound[0], "-i net1 -j RETURN");
    assert_eq!(
        inbound[inbound.len() - 2..],
        ["-p tcp --dport 8080 -j ISTIO_IN_REDIRECT", "-p tcp --dport 9000 -j ISTIO_IN_REDIRECT"]
    );
    let output = rules(&text, OUTPUT);
    assert_eq!(output[..2], ["-o net1 -j RETURN", "-p tcp --dport 3306 -j RETURN"]);
    let last = [
        "-d 10.96.9.0/24 -j RETURN",
        "-p tcp --dport 443 -j ISTIO_REDIRECT",
        "-p tcp -d 10.96.0.0/12 -j ISTIO_REDIRECT",
    ];
    assert_eq!(output[output.len() - 3..], last);
    let text = plan.restore(true, &[]);
    let output = rules(&text, OUTPUT);
    let last = [
        "-d fd00:1::/32 -j RETURN",
        "-p tcp --dport 443 -j ISTIO_REDIRECT",
        "-p tcp -d fd00::/16 -j ISTIO_REDIRECT",
    ];
    assert_eq!(output[output.len() - 3..], last);
    assert!(!text.contains("127.0.0") && !text.contains("10.96"), "{text}");
}

#[test]
fn nothing_is_taken_where_nothing_is_listed() {
    let nothing = Plan { inbound: "".parse().unwrap(), outbound: "".parse().unwrap(), ..plan(false) };
    let text = nothing.restore(false, &[]);
    assert!(rules(&text, INBOUND).iter().all(|rule| rule.ends_with("RETURN")), "{text}");
    assert!(!rules(&text, OUTPUT).iter().any(|rule| rule.ends_with("ISTIO_REDIRECT")), "{text}");
}

#[test]
fn transparent_connections_are_marked_and_not_redirected() {
    let plan = plan(true);
    let text = plan.restore(false, &plan.jumps());
    let (nat, mangle) = text.split_once("*mangle").unwrap();
    assert!(!nat.contains(INBOUND), "{nat}");
    let inbound = rules(mangle, INBOUND);
    assert_eq!(inbound[2], "-i lo -j RETURN");
    assert_eq!(inbound.last(), Some(&"-p tcp -j ISTIO_TPROXY"));
    assert_eq!(rules(mangle, "PREROUTING"), ["-p tcp -j ISTIO_INBOUND"]);
    assert_eq!(rules(mangle, "OUTPUT"), ["-p tcp -j ISTIO_OUTPUT"]);
}
