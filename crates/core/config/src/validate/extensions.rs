//! WasmPlugin and TrafficExtension.

use crate::extensions::{EnvValueSource, TrafficExtension, TrafficSelector, VmConfig, WasmPlugin};
use crate::path::Path;
use crate::problem::Checker;
use crate::validate::fields::lua;
use crate::validate::fields::names::{self, each, quoted, unique};
use crate::validate::fields::selectors::{self, Targets};
use crate::validate::fields::values::url_scheme;
use pilotfish_model::ObjectMeta;

/// Maximum size of a Lua script in bytes.
const LONGEST_SCRIPT: usize = 65_536;

pub(in crate::validate) fn wasm_plugin(
    plugin: &WasmPlugin,
    at: &Path<'_>,
    _: &ObjectMeta,
    checker: &mut Checker,
) {
    let targets = Targets {
        selector: plugin.selector.as_ref(),
        target_ref: plugin.target_ref.as_ref(),
        target_refs: &plugin.target_refs,
    };
    selectors::targets(&targets, at, checker);
    traffic(&plugin.r#match, &at.field("match"), checker);
    let module = Module {
        url: &plugin.url,
        sha256: &plugin.sha256,
        pull_secret: &plugin.image_pull_secret,
        name: &plugin.plugin_name,
        vm: plugin.vm_config.as_ref(),
    };
    module.check(at, checker);
}

pub(in crate::validate) fn traffic_extension(
    extension: &TrafficExtension,
    at: &Path<'_>,
    _: &ObjectMeta,
    checker: &mut Checker,
) {
    let targets = Targets {
        selector: extension.selector.as_ref(),
        target_ref: None,
        target_refs: &extension.target_refs,
    };
    selectors::targets(&targets, at, checker);
    traffic(&extension.r#match, &at.field("match"), checker);
    match (&extension.wasm, &extension.lua) {
        (Some(wasm), None) => {
            let module = Module {
                url: &wasm.url,
                sha256: &wasm.sha256,
                pull_secret: &wasm.image_pull_secret,
                name: &wasm.plugin_name,
                vm: wasm.vm_config.as_ref(),
            };
            module.check(&at.field("wasm"), checker);
        }
        (None, Some(script)) => {
            let lua = at.field("lua");
            let at = lua.field("inlineCode");
            match script.inline_code.len() {
                0 => checker.error(&at, "must be set"),
                size if size > LONGEST_SCRIPT => {
                    checker.error(&at, format!("has {size} bytes, at most {LONGEST_SCRIPT} are allowed"));
                }
                _ => {
                    if let Some(why) = lua::refusal(&script.inline_code) {
                        checker.error(&at, format!("does not compile: {why}"));
                    }
                }
            }
        }
        _ => checker.error(at, "one of wasm and lua must be set"),
    }
}

/// Checks the conditions on traffic.
fn traffic(conditions: &[TrafficSelector], at: &Path<'_>, checker: &mut Checker) {
    each(conditions, at, checker, |selector, at, checker| {
        let ports = at.field("ports");
        each(&selector.ports, &ports, checker, |port, at, checker| {
            names::port(port.number, &at.field("number"), checker);
        });
        unique(&selector.ports, &ports, "number", checker, |port| Some(port.number));
    });
}

/// A Wasm module and its settings.
struct Module<'a> {
    url: &'a str,
    sha256: &'a str,
    pull_secret: &'a str,
    name: &'a str,
    vm: Option<&'a VmConfig>,
}

impl Module<'_> {
    fn check(&self, at: &Path<'_>, checker: &mut Checker) {
        url(self.url, &at.field("url"), checker);
        let hexadecimal = |c: u8| matches!(c, b'0'..=b'9' | b'a'..=b'f');
        let sum = self.sha256.as_bytes();
        let is_sum = sum.is_empty() || (sum.len() == 64 && sum.iter().copied().all(hexadecimal));
        if !is_sum {
            checker.error(&at.field("sha256"), "must be 64 digits of 0-9 and a-f");
        }
        for (field, text, longest) in
            [("imagePullSecret", self.pull_secret, 253), ("pluginName", self.name, 256)]
        {
            if text.len() > longest {
                checker.error(&at.field(field), format!("has more than {longest} characters"));
            }
        }
        if let Some(config) = self.vm {
            environment(config, &at.field("vmConfig").field("env"), checker);
        }
    }
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

fn environment(config: &VmConfig, at: &Path<'_>, checker: &mut Checker) {
    const MOST: usize = 256;
    const LONGEST_NAME: usize = 256;
    const LONGEST_VALUE: usize = 2_048;
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
