//! `pilotfish config`.

use super::envoy;
use super::shown::Shown;
use crate::client::{Client, part};
use crate::error::CliError;
use crate::output::{Colour, Format, Screen, yaml};
use crate::table::Table;
use clap::Args;
use pilotfish_api::v1::{ConfigResource, ProxyConfig, Section};
use std::fmt::Write;
use std::process::ExitCode;

pub(super) const EXAMPLES: &str = "Examples:
  pilotfish config web-0.shop                           what it has, by name, with the objects that
                                                        made it
  pilotfish config web-0.shop routes 80                 one resource, in Envoy's YAML
  pilotfish config web-0.shop clusters catalog          those whose name contains this
  pilotfish config web-0.shop endpoints --full          all of them, whole
  pilotfish config web-0.shop routes 80 --at 41         what it would have had at an earlier
                                                        revision
  pilotfish config web-0.shop clusters --watch          again and again
  pilotfish config web-0.shop --diff --envoy-admin 127.0.0.1:15000
      against what the proxy says that it has
  pilotfish config web-0.shop listeners -o json | jq '.resources[].resource'

Private keys are never shown.";

/// Shows what one proxy was sent.
#[derive(Args, Clone, Debug)]
pub struct Config {
    /// The proxy: NAME.NAMESPACE, its node's id, or the beginning of its name
    proxy: String,
    /// clusters, endpoints, listeners, routes, secrets, extensions or names
    #[arg(value_parser = section)]
    section: Option<Section>,
    /// A resource's name, or a part of it
    name: Option<String>,
    /// Shows resources whole, also where no name is given
    #[arg(long)]
    full: bool,
    /// At an earlier revision: what the proxy would have had then. `pilotfish history` lists them
    #[arg(long, value_name = "REVISION")]
    at: Option<u64>,
    /// Compares it with what the proxy's own admin port says that it has; exit code 1 where something differs
    #[arg(long, conflicts_with = "at", requires = "envoy_admin")]
    diff: bool,
    /// The proxy's own admin port, for --diff: 127.0.0.1:15000 through `kubectl port-forward POD 15000`
    #[arg(long, value_name = "HOST:PORT", requires = "diff")]
    envoy_admin: Option<String>,
    #[command(flatten)]
    shown: Shown,
}

fn section(word: &str) -> Result<Section, String> {
    Section::parse(word).ok_or_else(|| {
        let known: Vec<&str> = Section::ALL.iter().map(|section| section.as_str()).collect();
        format!("known are {}", known.join(", "))
    })
}

impl Config {
    pub(super) async fn run(self) -> Result<ExitCode, CliError> {
        self.shown.repeat(async |client| self.show(client).await).await
    }

    async fn show(&self, client: &Client) -> Result<ExitCode, CliError> {
        let output = self.shown.output;
        let whole = self.full || self.diff || self.name.is_some() || output.format != Format::Text;
        let mut query = Vec::new();
        query.extend(self.section.map(|section| ("section", section.as_str())));
        query.extend(self.name.as_deref().map(|name| ("name", name)));
        query.push(("full", if whole { "true" } else { "false" }));
        let at = self.at.map(|revision| revision.to_string());
        query.extend(at.as_deref().map(|revision| ("at", revision)));
        let path = format!("proxies/{}/config", part(&self.proxy));
        if let Some(envoy) = &self.envoy_admin {
            let config = envoy::whole(client, &path, &query).await?;
            let asked = envoy::Asked { section: self.section, name: self.name.as_deref() };
            let answer = envoy::compare(&config, asked, &client.at(envoy)).await?;
            output.write(&answer, |screen| envoy::text(&answer, screen))?;
            return Ok(if answer.differences.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE });
        }
        let config: ProxyConfig = client.get(&path, &query).await?;
        if whole && output.format == Format::Text {
            let text = whole_text(&config)?;
            output.write(&config, |screen| paint_comments(&text, screen))?;
        } else {
            output.write(&config, |screen| names(&config, screen))?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn names(config: &ProxyConfig, screen: &Screen) -> String {
    let mut table = Table::new(["type", "name", "version", "made by"]);
    for resource in &config.resources {
        table.row([
            resource.section.as_str().into(),
            resource.name.as_str().into(),
            resource.version.as_str().into(),
            objects(&resource.made_by).into(),
        ]);
    }
    if table.is_empty() {
        return format!("{} was sent nothing that matches\n", config.proxy);
    }
    let mut out = table.text(screen) + &truncated(config);
    for resource in &config.resources {
        for left_out in &resource.left_out {
            let line = format!("{} {}: left out: {left_out}", resource.section, resource.name);
            let _ = writeln!(out, "{}", screen.paint(&line, Colour::Doubtful));
        }
    }
    out
}

/// The first few objects, and the number of others.
fn objects(made_by: &[String]) -> String {
    const FEW: usize = 3;
    let mut text = made_by.iter().take(FEW).cloned().collect::<Vec<_>>().join(", ");
    if made_by.len() > FEW {
        let _ = write!(text, " and {} more", made_by.len() - FEW);
    }
    text
}

fn truncated(config: &ProxyConfig) -> String {
    if !config.truncated {
        return String::new();
    }
    format!("# {} of {} are shown: a type and a name narrow it\n", config.resources.len(), config.total)
}

fn whole_text(config: &ProxyConfig) -> Result<String, CliError> {
    if config.resources.is_empty() {
        return Ok(format!("# {} was sent nothing that matches\n", config.proxy));
    }
    let mut out = String::new();
    for (place, resource) in config.resources.iter().enumerate() {
        if place > 0 {
            out.push_str("---\n");
        }
        out.push_str(&document(resource)?);
    }
    Ok(out + &truncated(config))
}

fn document(resource: &ConfigResource) -> Result<String, CliError> {
    let mut out = format!("# {} {}, version {}\n", resource.section, resource.name, resource.version);
    for object in &resource.made_by {
        let _ = writeln!(out, "# made by {object}");
    }
    for left_out in &resource.left_out {
        let _ = writeln!(out, "# left out: {}", left_out.replace('\n', " "));
    }
    Ok(out + &yaml(&resource.resource)?)
}

fn paint_comments(text: &str, screen: &Screen) -> String {
    let line = |line: &str| {
        if line.starts_with('#') { screen.paint(line, Colour::Faint) + "\n" } else { format!("{line}\n") }
    };
    text.lines().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn config() -> ProxyConfig {
        let resource = ConfigResource {
            section: Section::Routes,
            name: "80".into(),
            version: "00ff".into(),
            made_by: vec!["Service shop/web".into(), "VirtualService shop/web".into()],
            left_out: vec!["VirtualService shop/web spec.http: too large".into()],
            resource: json!({"name": "80", "virtual_hosts": []}),
        };
        ProxyConfig {
            proxy: "web-0.shop".into(),
            revision: 1,
            resources: vec![resource],
            total: 1,
            truncated: false,
        }
    }

    #[test]
    fn a_resource_is_yaml_with_the_objects_that_made_it() {
        assert_eq!(
            whole_text(&config()).unwrap(),
            "# routes 80, version 00ff\n# made by Service shop/web\n# made by VirtualService shop/web\n\
             # left out: VirtualService shop/web spec.http: too large\nname: \"80\"\nvirtual_hosts: []\n"
        );
    }

    #[test]
    fn names_are_a_table() {
        let text = names(&config(), &Screen::plain());
        assert!(
            text.contains("routes  80    00ff     Service shop/web, VirtualService shop/web\n"),
            "{text}"
        );
        assert!(
            text.ends_with("routes 80: left out: VirtualService shop/web spec.http: too large\n"),
            "{text}"
        );
    }

    #[test]
    fn sections_that_are_none_are_refused_with_those_that_are() {
        assert_eq!(
            section("things").unwrap_err(),
            "known are clusters, endpoints, secrets, extensions, listeners, routes, names"
        );
    }
}
