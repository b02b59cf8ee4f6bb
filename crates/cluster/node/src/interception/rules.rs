//! Redirection rules of a Pod as input for `iptables-restore`. No IO.
//!
//! ```text
//!  to the Pod    PREROUTING ─▶ ISTIO_INBOUND ─▶ Envoy's inbound port ─▶ application, from 127.0.0.6 or lo
//!  of the Pod    OUTPUT ─▶ ISTIO_OUTPUT ─▶ Envoy's outbound port ─▶ network, by Envoy's user and group
//! ```

use pilotfish_webhook::inject::traffic::{Block, Interface, Listed, Port};
use std::collections::BTreeSet;
use std::fmt::{Display, Write};

/// Source addresses of Envoy's own connections to the applications of its Pod, to distinguish them from
/// others: IPv4 and IPv6.
pub(super) const PASSTHROUGH: [&str; 2] = ["127.0.0.6/32", "::6/128"];

/// Connections that are redirected to Envoy, and the marks of its own ones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Envoy's port for outbound connections.
    pub outbound_port: Port,
    /// Envoy's port for inbound connections.
    pub inbound_port: Port,
    /// Port for tunnels to the Pod, which end at Envoy anyway.
    pub tunnel_port: Port,
    /// User id of Envoy.
    pub user: u32,
    /// Group id of Envoy.
    pub group: u32,
    /// True if inbound connections keep both addresses (TPROXY); false if their destination is rewritten
    /// (REDIRECT).
    pub transparent: bool,
    /// Mark of packets that stay on the Pod.
    pub mark: u32,
    /// Inbound ports that are redirected.
    pub inbound: Listed<Port>,
    /// Inbound ports that are excluded.
    pub not_inbound: BTreeSet<Port>,
    /// Outbound addresses that are redirected.
    pub outbound: Listed<Block>,
    /// Outbound addresses that are excluded.
    pub not_outbound: BTreeSet<Block>,
    /// Outbound ports that are redirected regardless of the address.
    pub outbound_ports: BTreeSet<Port>,
    /// Outbound ports that are excluded.
    pub not_outbound_ports: BTreeSet<Port>,
    /// Interfaces that are excluded.
    pub not_interfaces: BTreeSet<Interface>,
}

/// A jump from a system chain to one of ours. It is the only rule that must not be duplicated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Jump {
    pub table: &'static str,
    /// System chain, such as `PREROUTING`.
    pub from: &'static str,
    /// Chain of the interception, such as `ISTIO_INBOUND`.
    pub to: &'static str,
}

impl Jump {
    /// Rule without the command and the chain.
    pub const MATCH: [&'static str; 3] = ["-p", "tcp", "-j"];
}

const INBOUND: &str = "ISTIO_INBOUND";
const OUTPUT: &str = "ISTIO_OUTPUT";
const TO_OUTBOUND: &str = "ISTIO_REDIRECT";
const TO_INBOUND: &str = "ISTIO_IN_REDIRECT";
const DIVERT: &str = "ISTIO_DIVERT";
const TPROXY: &str = "ISTIO_TPROXY";

/// Rules of a chain, one per line.
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
    /// Jumps to our chains that this plan needs.
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

    /// Input for `iptables-restore --noflush` (or `ip6tables-restore`). Our chains are replaced; `missing`
    /// are the jumps to them that do not exist yet.
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

    /// Rules for inbound connections, which redirect to the chain `to`.
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

    /// Rules for outbound connections.
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
        // Connections from Envoy to the applications of its Pod must not be redirected again.
        match self.transparent {
            true => chain.rule(format_args!("-m mark --mark {} -j RETURN", self.mark)),
            false => chain.rule(format_args!("-s {} -o lo -j RETURN", PASSTHROUGH[usize::from(ipv6)])),
        }
        // A Pod that calls its own Service: Envoy's connection to the Pod's address is handled like any
        // inbound one.
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

    /// Rules for inbound connections that keep their addresses. Envoy's own connections to the applications
    /// have the client's address too: their mark, saved with the connection, routes the responses back to
    /// Envoy.
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

/// Creates chains, or empties existing ones.
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
