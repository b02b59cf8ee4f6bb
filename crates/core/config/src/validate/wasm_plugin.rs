//! WasmPlugin.

use crate::extensions::{EnvValueSource, WasmPlugin};
use crate::path::Path;
use crate::problem::Checker;
use crate::validate::fields::names::{self, each, quoted, unique};
use crate::validate::fields::selectors::{self, Targets};
use crate::validate::fields::values::url_scheme;
use pilotfish_model::ObjectMeta;

pub(in crate::validate) fn check(plugin: &WasmPlugin, at: &Path<'_>, _: &ObjectMeta, checker: &mut Checker) {
    let targets = Targets {
        selector: plugin.selector.as_ref(),
        target_ref: plugin.target_ref.as_ref(),
        target_refs: &plugin.target_refs,
    };
    selectors::targets(&targets, at, checker);
    url(&plugin.url, &at.field("url"), checker);
    let hexadecimal = |c: u8| matches!(c, b'0'..=b'9' | b'a'..=b'f');
    let sum = plugin.sha256.as_bytes();
    let is_sum = sum.is_empty() || (sum.len() == 64 && sum.iter().copied().all(hexadecimal));
    if !is_sum {
        checker.error(&at.field("sha256"), "must be 64 digits of 0-9 and a-f");
    }
    let names =
        [("imagePullSecret", &plugin.image_pull_secret, 253), ("pluginName", &plugin.plugin_name, 256)];
    for (field, text, longest) in names {
        if text.len() > longest {
            checker.error(&at.field(field), format!("has more than {longest} characters"));
        }
    }
    each(&plugin.r#match, &at.field("match"), checker, |selector, at, checker| {
        let ports = at.field("ports");
        each(&selector.ports, &ports, checker, |port, at, checker| {
            names::port(port.number, &at.field("number"), checker);
        });
        unique(&selector.ports, &ports, "number", checker, |port| Some(port.number));
    });
    environment(plugin, &at.field("vmConfig").field("env"), checker);
}

fn url(url: &str, at: &Path<'_>, checker: &mut Checker) {
    if url.is_empty() {
        return checker.error(at, "must be set");
    }
    // Without a scheme, the text is the name of an image.
    let scheme = if url.contains("://") { url_scheme(url) } else { Some(String::new()) };
    let spaces = url.bytes().any(|c| c <= b' ' || c == 0x7f);
    if spaces || !matches!(scheme.as_deref(), Some("" | "file" | "http" | "https" | "oci")) {
        checker.error(at, format!("{} is not a URL with oci, http, https or file", quoted(url)));
    }
}

fn environment(plugin: &WasmPlugin, at: &Path<'_>, checker: &mut Checker) {
    const MOST: usize = 256;
    const LONGEST_NAME: usize = 256;
    const LONGEST_VALUE: usize = 2_048;
    let Some(config) = &plugin.vm_config else { return };
    if config.env.len() > MOST {
        checker.error(at, format!("has {} items, at most {MOST} are allowed", config.env.len()));
    }
    each(&config.env, at, checker, |variable, at, checker| {
        if variable.name.is_empty() {
            checker.error(&at.field("name"), "must be set");
        } else if variable.name.len() > LONGEST_NAME {
            checker.error(&at.field("name"), format!("has more than {LONGEST_NAME} characters"));
        }
        if variable.value_from != EnvValueSource::Inline && !variable.value.is_empty() {
            checker.error(&at.field("value"), "must only be set for valueFrom INLINE");
        } else if variable.value.len() > LONGEST_VALUE {
            checker.error(&at.field("value"), format!("has more than {LONGEST_VALUE} characters"));
        }
    });
    unique(&config.env, at, "name", checker, |variable| Some(&variable.name));
}
