//! Client: reads configuration from a server of MCP over xDS.

mod content;
mod eds;
#[cfg(test)]
mod pushes;
#[cfg(test)]
mod recorded;
#[cfg(any(test, feature = "testing"))]
mod relay;
mod second_read;
mod settings;
mod source;
mod stream;
mod synthetic;
#[cfg(test)]
mod tests;
mod transport;

use pilotfish_connect::TLS_OPTIONS;
use pilotfish_registry::{Input, LiveSettings, ObjectSettings, ObjectSource, OptionsError, RegistryType};
use settings::McpSettings;
use source::McpSource;

#[cfg(any(test, feature = "testing"))]
pub(crate) use relay::relay;

/// Entry in the table of registries.
pub static MCP: RegistryType = RegistryType {
    name: "mcp",
    provider: "mcp",
    about: "Istio configuration over MCP (xDS)",
    address: "xds://HOST:PORT",
    options: &[settings::OPTIONS, TLS_OPTIONS],
    input: Input::Source { check, open },
};

/// Validates the settings without connecting.
fn check(settings: LiveSettings) -> Result<(), OptionsError> {
    McpSettings::parse(settings).map(drop)
}

fn open(settings: ObjectSettings) -> Result<Box<dyn ObjectSource>, OptionsError> {
    let ObjectSettings { name, live, checks } = settings;
    Ok(Box::new(McpSource::new(McpSettings::parse(live)?, &name, checks)))
}
