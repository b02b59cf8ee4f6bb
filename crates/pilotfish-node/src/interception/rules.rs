//! The rules that lead a Pod's connections to its Envoy, as a text for `iptables-restore`. Nothing here does IO.
//!
//! ```text
//!  to the Pod    PREROUTING ─▶ ISTIO_INBOUND ─▶ Envoy's inbound port ─▶ the program, from 127.0.0.6 or over lo
//!  of the Pod    OUTPUT ─▶ ISTIO_OUTPUT ─▶ Envoy's outbound port ─▶ Envoy, by its user and group, goes out
//! ```

use pilotfish_webhook::inject::traffic::{Block, Interface, Listed, Port};
use std::collections::BTreeSet;
use std::fmt::{Display, Write};

/// Where Envoy's own connections to the programs of its Pod come from, to distinguish them from others: IPv4 and IPv6.
pub(super) const PASSTHROUGH: [&str; 2] = ["127.0.0.6/32", "::6/128"];

/// Which connections go through Envoy, and how its own are recognised.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Where Envoy takes connections that leave the Pod.
    pub outbound_port: Port,
    /// Where Envoy takes connections to the Pod.
    pub inbound_port: Port,
    /// Where tunnels to the Pod end, which are Envoy's already.
    pub tunnel_port: Port,
    /// Envoy's user.
    pub user: u32,
    /// Envoy's group.
    pub group: u32,
    /// Whether connections to the Pod keep both addresses (TPROXY); otherwise their destination is changed (REDIRECT).
    pub transparent: bool,
    /// The mark of packets that stay on the Pod.
    pub mark: u32,
    /// The ports of the Pod whose connections go through Envoy.
    pub inbound: Listed<Port>,
    /// Those of them that do not.
    pub not_inbound: BTreeSet<Port>,
    /// The addresses to which connections go through Envoy.
    pub outbound: Listed<Block>,
    /// Those of them that do not.
    pub not_outbound: BTreeSet<Block>,
    /// The ports to which connections go through Envoy, whatever the address.
    pub outbound_ports: BTreeSet<Port>,
    /// The ports to which connections do not.
    pub not_outbound_ports: BTreeSet<Port>,
    /// The interfaces of which connections do not.
    pub not_interfaces: BTreeSet<Interface>,
}

/// A step from a chain of the system into one of ours. It is the only rule that must not be there twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Jump {
    /// The table.
    pub table: &'static str,
    /// The chain of the system.
    pub from: &'static str,
    /// The chain of ours.
    pub to: &'static str,
}

impl Jump {
    /// Its rule, without the command and the chain.
    pub const MATCH: [&'static str; 3] = ["-p", "tcp", "-j"];
}

const INBOUND: &str = "ISTIO_INBOUND";
const OUTPUT: &str = "ISTIO_OUTPUT";
const TO_OUTBOUND: &str = "ISTIO_REDIRECT";
const TO_INBOUND: &str = "ISTIO_IN_REDIRECT";
const DIVERT: &str = "ISTIO_DIVERT";
const TPROXY: &str = "ISTIO_TPROXY";

/// The rules of a chain, a line each.
struct Chain<'a> {
    name: &'static str,
    out: &'a mut String,
}

impl Chain<'_> {
    fn rule(&mut self, rule: impl Display) {
        // Writing to a String cannot fail.
        let _ = writeln!(self.out, "-A {} {rule}", self.name);
    }
}

impl Plan {
    /// The steps into our chains that this plan needs.
    #[must_use]
    pub fn jumps(&self) -> Vec<Jump> {
        let jump = |table, from, to| Jump { table, from, to };
        let mut jumps = vec![jump("nat", "OUTPUT", OUTPUT)];
        match self.transparent {
            true => jumps.extend([jump("mangle", "PREROUTING", INBOUND), jump("mangle", "OUTPUT", OUTPUT)]),
            false => jumps.push(jump("nat", "PREROUTING", INBOUND)),
        }
        jumps
    }

    /// What `iptables-restore --noflush` (or `ip6tables-restore`) gets. Our chains are replaced; `missing` are the steps into
    /// them that are not there yet.
    #[must_use]
    pub fn restore(&self, ipv6: bool, missing: &[Jump]) -> String {
        let mut out = String::new();
        out.push_str("*nat\n");
        let chains: &[_] = if self.transparent { &[] } else { &[INBOUND] };
        declare(&mut out, &[&[OUTPUT, TO_OUTBOUND, TO_INBOUND], chains].concat());
        Chain { name: TO_OUTBOUND, out: &mut out }
            .rule(format_args!("-p tcp -j REDIRECT --to-ports {}", self.outbound_port));
        Chain { name: TO_INBOUND, out: &mut out }
            .rule(format_args!("-p tcp -j REDIRECT --to-ports {}", self.inbound_port));
        if !self.transparent {
            self.inbound(&mut out, TO_INBOUND);
        }
        self.output(&mut out, ipv6);
        jump(&mut out, "nat", missing);
        out.push_str("COMMIT\n");
        if self.transparent {
            self.mangle(&mut out, ipv6, missing);
        }
        out
    }

    /// Which connections to the Pod go on to the chain `to`.
    fn inbound(&self, out: &mut String, to: &str) {
        let mut chain = Chain { name: INBOUND, out };
        for interface in &self.not_interfaces {
            chain.rule(format_args!("-i {interface} -j RETURN"));
        }
        chain.rule(format_args!("-p tcp --dport {} -j RETURN", self.tunnel_port));
        for port in &self.not_inbound {
            chain.rule(format_args!("-p tcp --dport {port} -j RETURN"));
        }
        match &self.inbound {
            Listed::All => chain.rule(format_args!("-p tcp -j {to}")),
            Listed::These(ports) => {
                for port in ports {
                    chain.rule(format_args!("-p tcp --dport {port} -j {to}"));
                }
            }
        }
    }

    /// Which connections of the Pod go through Envoy.
    fn output(&self, out: &mut String, ipv6: bool) {
        let Self { user, group, tunnel_port, .. } = self;
        let loopback = if ipv6 { "::1/128" } else { "127.0.0.1/32" };
        let mut chain = Chain { name: OUTPUT, out };
        for interface in &self.not_interfaces {
            chain.rule(format_args!("-o {interface} -j RETURN"));
        }
        for port in &self.not_outbound_ports {
            chain.rule(format_args!("-p tcp --dport {port} -j RETURN"));
        }
        // What Envoy passes on to the programs of its Pod must not come back to it.
        match self.transparent {
            true => chain.rule(format_args!("-m mark --mark {} -j RETURN", self.mark)),
            false => chain.rule(format_args!("-s {} -o lo -j RETURN", PASSTHROUGH[usize::from(ipv6)])),
        }
        // A Pod that calls itself by its Service: what Envoy sends to the Pod's own address comes in like any other request.
        for owner in [format!("--uid-owner {user}"), format!("--gid-owner {group}")] {
            chain.rule(format_args!(
                "! -d {loopback} -o lo -p tcp ! --dport {tunnel_port} -m owner {owner} -j {TO_INBOUND}"
            ));
        }
        chain.rule(format_args!("-o lo -m owner ! --uid-owner {user} ! --gid-owner {group} -j RETURN"));
        chain.rule(format_args!("-m owner --uid-owner {user} -j RETURN"));
        chain.rule(format_args!("-m owner --gid-owner {group} -j RETURN"));
        chain.rule(format_args!("-d {loopback} -j RETURN"));
        for block in self.not_outbound.iter().filter(|block| block.is_ipv6() == ipv6) {
            chain.rule(format_args!("-d {block} -j RETURN"));
        }
        for port in &self.outbound_ports {
            chain.rule(format_args!("-p tcp --dport {port} -j {TO_OUTBOUND}"));
        }
        match &self.outbound {
            Listed::All => chain.rule(format_args!("-p tcp -j {TO_OUTBOUND}")),
            Listed::These(blocks) => {
                for block in blocks.iter().filter(|block| block.is_ipv6() == ipv6) {
                    chain.rule(format_args!("-p tcp -d {block} -j {TO_OUTBOUND}"));
                }
            }
        }
    }

    /// Connections to the Pod that keep their addresses. Envoy's own to the programs of the Pod have the client's address too: their
    /// mark, kept with the connection, brings the answers back to Envoy.
    fn mangle(&self, out: &mut String, ipv6: bool, missing: &[Jump]) {
        let Self { mark, inbound_port, .. } = self;
        let loopback = if ipv6 { "::1/128" } else { "127.0.0.1/32" };
        out.push_str("*mangle\n");
        declare(out, &[INBOUND, OUTPUT, DIVERT, TPROXY]);
        let mut chain = Chain { name: DIVERT, out };
        chain.rule(format_args!("-j MARK --set-mark {mark}"));
        chain.rule("-j ACCEPT");
        Chain { name: TPROXY, out }.rule(format_args!(
            "! -d {loopback} -p tcp -j TPROXY --tproxy-mark {mark}/0xffffffff --on-port {inbound_port}"
        ));
        let mut chain = Chain { name: INBOUND, out };
        chain.rule(format_args!("-p tcp -m mark --mark {mark} -j CONNMARK --save-mark"));
        chain.rule(format_args!("-p tcp -m mark --mark {mark} -j RETURN"));
        chain.rule("-i lo -j RETURN");
        chain.rule(format_args!("-p tcp -m conntrack --ctstate RELATED,ESTABLISHED -j {DIVERT}"));
        self.inbound(out, TPROXY);
        Chain { name: OUTPUT, out }
            .rule(format_args!("-p tcp -m connmark --mark {mark} -j CONNMARK --restore-mark"));
        jump(out, "mangle", missing);
        out.push_str("COMMIT\n");
    }
}

/// Makes chains, or empties those that are there.
fn declare(out: &mut String, chains: &[&str]) {
    for chain in chains {
        // Writing to a String cannot fail.
        let _ = writeln!(out, ":{chain} - [0:0]");
    }
}

fn jump(out: &mut String, table: &str, missing: &[Jump]) {
    for jump in missing.iter().filter(|jump| jump.table == table) {
        // Writing to a String cannot fail.
        let _ = writeln!(out, "-A {} {} {}", jump.from, Jump::MATCH.join(" "), jump.to);
    }
}

#[cfg(test)]
mod tests;
