//! What is wrong with `--registry zookeeper=...` is said before anything starts.

use pilotfish_testkit::real::LiveRegistry;
use pilotfish_zookeeper::ZOOKEEPER;

#[test]
fn mistakes_are_refused_with_their_reason() {
    for (text, want) in [
        ("http://a", "the scheme \"http\" is not one of zk://, zks://"),
        ("zk://a,", "\"\" is not HOST:PORT: the host is neither a name nor an IP"),
        ("zk://a//b", "\"//b\" is no path of a node"),
        ("zk://a?dubboPath=dubbo", "dubboPath=dubbo: neither a path, as /dubbo, nor off"),
        ("zk://a?dubboPath=/a/../b", "dubboPath=/a/../b: neither a path, as /dubbo, nor off"),
        (
            "zk://a?dubboPath=off&servicesPath=off",
            "dubboPath and servicesPath are both off: nothing is left to read",
        ),
        (
            "zk://a/x?servicesPath=/dubbo/services",
            "dubboPath /x/dubbo and servicesPath /x/dubbo/services are one in the other",
        ),
        ("zk://a?domain=a%20b", "not a domain"),
        ("zk://a?watches=all", "watches=all: neither below nor single"),
        ("zk://a?sessionTimeout=0s", "sessionTimeout=0s: not above zero"),
        ("zk://a?guard=200", "guard=200: not a share in percent from 1 to 99, nor off"),
        ("zk://a?caFile=x", "TLS"),
        ("zk://a?nothing=1", "there is no option \"nothing\""),
    ] {
        let refusal = LiveRegistry::refusal(&ZOOKEEPER, text);
        assert!(refusal.contains(want), "{text}: {refusal}");
    }
    let several = LiveRegistry::refusal(&ZOOKEEPER, "http://a?watches=all&guard=0");
    assert_eq!(several.matches("; ").count(), 2, "all of them at once: {several}");
}
