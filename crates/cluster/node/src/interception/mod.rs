//! `pilotfish istio-iptables`: redirects the connections of a Pod to its Envoy. The init container of a
//! sidecar runs it; its flags are those of Istio's program of this name, so that both images work.

mod rules;

pub use rules::{Jump, Plan};

use anyhow::{Context, Result, ensure};
use clap::{Args, ValueEnum};
use pilotfish_webhook::inject::traffic::{Block, Interface, Listed, Port, list};
use std::collections::BTreeSet;
use std::io::{ErrorKind, Write};
use std::net::Ipv6Addr;
use std::process::{Command, Output, Stdio};

/// Maximum wait in seconds for another process that writes rules.
const PATIENCE: &str = "10";

/// Writes the iptables rules that redirect a Pod's connections to its Envoy.
#[derive(Args, Clone, Debug)]
pub struct IstioIptables {
    /// Port of Envoy for connections that leave the Pod
    #[arg(short = 'p', long = "envoy-port", value_name = "PORT", default_value = "15001")]
    outbound_port: Port,
    /// Port of Envoy for connections to the Pod
    #[arg(short = 'z', long = "inbound-capture-port", value_name = "PORT", default_value = "15006")]
    inbound_port: Port,
    /// Port of Envoy for HBONE tunnels to the Pod
    #[arg(short = 'e', long = "inbound-tunnel-port", value_name = "PORT", default_value = "15008")]
    tunnel_port: Port,
    /// Envoy's user: its connections are not redirected
    #[arg(short = 'u', long = "proxy-uid", value_name = "UID", default_value = "1337")]
    user: u32,
    /// Envoy's group: its connections are not redirected
    #[arg(short = 'g', long = "proxy-gid", value_name = "GID", default_value = "1337")]
    group: u32,
    /// Mode of intercepting connections to the Pod
    #[arg(
        short = 'm',
        long = "istio-inbound-interception-mode",
        value_enum,
        ignore_case = true,
        default_value = "REDIRECT"
    )]
    mode: Mode,
    /// Ports of the Pod whose connections go through Envoy, separated by commas; * for all
    #[arg(
        short = 'b',
        long = "istio-inbound-ports",
        value_name = "PORTS",
        default_value = "*",
        value_parser = listed::<Port>
    )]
    inbound: Listed<Port>,
    /// Ports excluded from --istio-inbound-ports
    #[arg(
        short = 'd',
        long = "istio-local-exclude-ports",
        value_name = "PORTS",
        default_value = "",
        value_parser = many::<Port>
    )]
    not_inbound: Many<Port>,
    /// Destination address blocks whose connections go through Envoy, separated by commas; * for all
    #[arg(
        short = 'i',
        long = "istio-service-cidr",
        value_name = "CIDRS",
        default_value = "*",
        value_parser = listed::<Block>
    )]
    outbound: Listed<Block>,
    /// Address blocks excluded from --istio-service-cidr
    #[arg(
        short = 'x',
        long = "istio-service-exclude-cidr",
        value_name = "CIDRS",
        default_value = "",
        value_parser = many::<Block>
    )]
    not_outbound: Many<Block>,
    /// Destination ports whose connections go through Envoy at any address
    #[arg(
        short = 'q',
        long = "istio-outbound-ports",
        value_name = "PORTS",
        default_value = "",
        value_parser = many::<Port>
    )]
    outbound_ports: Many<Port>,
    /// Destination ports whose connections do not go through Envoy
    #[arg(
        short = 'o',
        long = "istio-local-outbound-ports-exclude",
        value_name = "PORTS",
        default_value = "",
        value_parser = many::<Port>
    )]
    not_outbound_ports: Many<Port>,
    /// Network interfaces whose connections do not go through Envoy
    #[arg(
        short = 'c',
        long = "istio-exclude-interfaces",
        value_name = "NAMES",
        default_value = "",
        value_parser = many::<Interface>
    )]
    not_interfaces: Many<Interface>,
    /// Mark of packets that stay on the Pod, with TPROXY
    #[arg(short = 't', long = "istio-inbound-tproxy-mark", value_name = "MARK", default_value = "1337")]
    mark: u32,
    /// Routing table of marked packets, with TPROXY
    #[arg(
        short = 'r',
        long = "istio-inbound-tproxy-route-table",
        value_name = "TABLE",
        default_value = "133"
    )]
    table: u32,
    /// Prints the rules without applying them
    #[arg(short = 'n', long)]
    dry_run: bool,
}

/// Interception mode of inbound connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "UPPERCASE")]
enum Mode {
    Redirect,
    Tproxy,
}

/// A list: clap would treat a set as a repeatable flag.
type Many<T> = std::sync::Arc<BTreeSet<T>>;

fn many<T: std::str::FromStr<Err = String> + Ord>(text: &str) -> Result<Many<T>, String> {
    list(text).map(Into::into)
}

fn listed<T: std::str::FromStr<Err = String> + Ord>(text: &str) -> Result<Listed<T>, String> {
    text.parse()
}

/// Programs for one address family.
struct Family {
    ipv6: bool,
    iptables: &'static str,
    restore: &'static str,
    ip: &'static str,
}

const IPV4: Family = Family { ipv6: false, iptables: "iptables", restore: "iptables-restore", ip: "-4" };
const IPV6: Family = Family { ipv6: true, iptables: "ip6tables", restore: "ip6tables-restore", ip: "-6" };

impl IstioIptables {
    /// Writes the rules, and prints them to `out`. Idempotent.
    ///
    /// # Errors
    /// If a program is missing, or the kernel or the container's capabilities do not allow it.
    pub fn run(&self, out: &mut impl Write) -> Result<()> {
        let plan = self.plan();
        for family in [Some(IPV4), has_ipv6().then_some(IPV6)].into_iter().flatten() {
            if self.dry_run {
                write!(out, "{}", plan.restore(family.ipv6, &plan.jumps()))?;
                continue;
            }
            let mut missing = Vec::new();
            for jump in plan.jumps() {
                if !is_there(&family, jump)? {
                    missing.push(jump);
                }
            }
            let rules = plan.restore(family.ipv6, &missing);
            writeln!(out, "{} gets\n{rules}", family.restore)?;
            feed(&family, &rules)?;
            if family.ipv6 {
                give_source_address()?;
            }
            if plan.transparent {
                self.route(&family)?;
            }
        }
        Ok(())
    }

    fn plan(&self) -> Plan {
        Plan {
            outbound_port: self.outbound_port,
            inbound_port: self.inbound_port,
            tunnel_port: self.tunnel_port,
            user: self.user,
            group: self.group,
            transparent: self.mode == Mode::Tproxy,
            mark: self.mark,
            inbound: self.inbound.clone(),
            not_inbound: self.not_inbound.as_ref().clone(),
            outbound: self.outbound.clone(),
            not_outbound: self.not_outbound.as_ref().clone(),
            outbound_ports: self.outbound_ports.as_ref().clone(),
            not_outbound_ports: self.not_outbound_ports.as_ref().clone(),
            not_interfaces: self.not_interfaces.as_ref().clone(),
        }
    }

    /// Routes packets with the mark to the Pod itself, regardless of their address.
    fn route(&self, family: &Family) -> Result<()> {
        let (mark, table) = (self.mark.to_string(), self.table.to_string());
        let rule = ["fwmark", &mark, "lookup", &table];
        // Fails the first time, without a rule. Duplicates are harmless, but would accumulate.
        run(Command::new("ip").args([family.ip, "rule", "del"]).args(rule))?;
        let add = run(Command::new("ip").args([family.ip, "rule", "add"]).args(rule))?;
        done("ip rule add", &add)?;
        let route = ["local", "default", "dev", "lo", "table", &table];
        let replace = run(Command::new("ip").args([family.ip, "route", "replace"]).args(route))?;
        done("ip route replace", &replace)
    }
}

/// Adds the IPv6 source address of Envoy's connections to the applications of its Pod: an address has to
/// exist to be bound. The IPv4 address always exists, since all of 127.0.0.0/8 belongs to the loopback
/// interface.
fn give_source_address() -> Result<()> {
    let [_, source] = rules::PASSTHROUGH;
    let replace = run(Command::new("ip").args(["-6", "address", "replace", source, "dev", "lo"]))?;
    done("ip address replace", &replace)
}

/// True if the Pod has an IPv6 address that is reachable from outside.
fn has_ipv6() -> bool {
    // A missing file means no IPv6 at all.
    let addresses = std::fs::read_to_string("/proc/net/if_inet6").unwrap_or_default();
    addresses.lines().any(is_reached)
}

/// True if a line of `if_inet6` is neither a loopback nor a link-local address.
fn is_reached(line: &str) -> bool {
    let address = line.split_whitespace().next().and_then(|hex| u128::from_str_radix(hex, 16).ok());
    let address = address.map(Ipv6Addr::from);
    address.is_some_and(|address| !address.is_loopback() && !address.is_unicast_link_local())
}

fn is_there(family: &Family, jump: Jump) -> Result<bool> {
    let mut command = Command::new(family.iptables);
    command.args(["-w", PATIENCE, "-t", jump.table, "-C", jump.from]).args(Jump::MATCH).arg(jump.to);
    // Fails without our chain, as it does without the rule.
    Ok(run(&mut command)?.status.success())
}

fn feed(family: &Family, rules: &str) -> Result<()> {
    let mut command = Command::new(family.restore);
    command.args(["-w", PATIENCE, "--noflush"]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|error| cannot_run(&command, error))?;
    if let Some(mut stdin) = child.stdin.take() {
        // It exits at once without the permission, and prints the reason.
        match stdin.write_all(rules.as_bytes()) {
            Err(error) if error.kind() != ErrorKind::BrokenPipe => {
                return Err(error).context("writing rules");
            }
            _ => {}
        }
    }
    done(family.restore, &child.wait_with_output().context("waiting for the rules")?)
}

fn run(command: &mut Command) -> Result<Output> {
    command.stdin(Stdio::null()).output().map_err(|error| cannot_run(command, error))
}

fn cannot_run(command: &Command, error: std::io::Error) -> anyhow::Error {
    let program = command.get_program().to_string_lossy().into_owned();
    anyhow::Error::new(error).context(format!(
        "{program} cannot be run: the image of the init container needs iptables and iproute2"
    ))
}

fn done(what: &str, output: &Output) -> Result<()> {
    let stderr = String::from_utf8_lossy(&output.stderr);
    ensure!(
        output.status.success(),
        "{what}: {}\nhint: the init container needs the capabilities NET_ADMIN and NET_RAW",
        stderr.trim()
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        iptables: IstioIptables,
    }

    #[test]
    fn flags_are_those_of_istio() {
        let args = [
            "x",
            "-p",
            "15001",
            "-z",
            "15006",
            "-u",
            "1337",
            "-m",
            "TPROXY",
            "-i",
            "10.0.0.0/8",
            "-x",
            "",
            "-b",
            "*",
        ];
        let args = args.into_iter().chain(["-d", "15090,15021", "-q", "", "-o", "3306", "-c", ""]);
        let plan = Cli::try_parse_from(args).unwrap().iptables.plan();
        assert!(plan.transparent && plan.inbound == Listed::All && plan.not_outbound.is_empty());
        assert_eq!((plan.not_inbound.len(), plan.not_outbound_ports.len()), (2, 1));
        for wrong in [["-b", "http"], ["-i", "10.0.0.0"], ["-m", "NONE"], ["-p", "0"], ["-c", "a;b"]] {
            assert!(Cli::try_parse_from(["x"].into_iter().chain(wrong)).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn link_local_and_loopback_addresses_do_not_count() {
        let line = |address: &str| format!("{address} 02 40 00 80     eth0");
        assert!(is_reached(&line("fd000000000000000000000000000002")));
        assert!(!is_reached(&line("fe800000000000000000000000000002")));
        assert!(!is_reached(&line("00000000000000000000000000000001")));
        assert!(!is_reached("") && !is_reached("zz"));
    }
}
