//! Meaning of paths.

/// Nodes below Dubbo's root that are not interfaces.
const RESERVED: &[&str] = &["config", "mapping", "metadata"];

/// Root paths of registrations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    /// Dubbo's root, such as `/dubbo`; `None` if it is not read.
    pub(crate) dubbo: Option<String>,
    /// Root of applications, such as `/services`; `None` if it is not read.
    pub(crate) services: Option<String>,
}

/// Role of a node. Names are single path segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place<'a> {
    /// `/dubbo`: its children are interfaces and reserved nodes.
    DubboRoot,
    /// Node `/dubbo/INTERFACE` of an interface.
    Interface(&'a str),
    /// Node `/dubbo/INTERFACE/providers`; its children are providers.
    Providers(&'a str),
    /// Node `/dubbo/INTERFACE/providers/URL` of a provider.
    Provider(&'a str, &'a str),
    /// Node `/dubbo/INTERFACE/configurators`; its children are configurators.
    Configurators(&'a str),
    /// Node `/dubbo/INTERFACE/configurators/URL` of a configurator.
    Configurator(&'a str, &'a str),
    /// `/dubbo/mapping`: its children are interfaces.
    MappingRoot,
    /// Node `/dubbo/mapping/INTERFACE`, which names the applications of an interface.
    Mapping(&'a str),
    /// Node `/dubbo/metadata/APPLICATION/REVISION`, with the services of a revision.
    Revision(&'a str, &'a str),
    /// `/services`: its children are applications.
    ServicesRoot,
    /// Node `/services/APPLICATION`; its children are instances.
    Application(&'a str),
    /// Node `/services/APPLICATION/INSTANCE` of an instance.
    Instance(&'a str, &'a str),
}

impl Place<'_> {
    /// True if the node's data is read, and not its children.
    pub(crate) fn has_data(self) -> bool {
        matches!(self, Self::Mapping(_) | Self::Revision(..) | Self::Instance(..))
    }
}

impl Layout {
    /// Returns the role of a path; `None` for unused nodes, such as consumers.
    pub(crate) fn place<'a>(&self, path: &'a str) -> Option<Place<'a>> {
        if let Some(rest) = below(self.dubbo.as_deref(), path) {
            return dubbo_place(rest);
        }
        let mut names = below(self.services.as_deref(), path)?.splitn(3, '/');
        Some(match (names.next()?, names.next(), names.next()) {
            ("", None, _) => Place::ServicesRoot,
            (application, None, _) => Place::Application(application),
            (application, Some(instance), None) => Place::Instance(application, instance),
            _ => return None,
        })
    }

    /// Returns the path of a place; `None` if the layout has no root for it.
    pub(crate) fn path(&self, place: Place<'_>) -> Option<String> {
        let (dubbo, services) = (self.dubbo.as_deref(), self.services.as_deref());
        Some(match place {
            Place::DubboRoot => dubbo?.to_owned(),
            Place::Interface(interface) => format!("{}/{interface}", dubbo?),
            Place::Providers(interface) => format!("{}/{interface}/providers", dubbo?),
            Place::Provider(interface, node) => format!("{}/{interface}/providers/{node}", dubbo?),
            Place::Configurators(interface) => format!("{}/{interface}/configurators", dubbo?),
            Place::Configurator(interface, node) => format!("{}/{interface}/configurators/{node}", dubbo?),
            Place::MappingRoot => format!("{}/mapping", dubbo?),
            Place::Mapping(interface) => format!("{}/mapping/{interface}", dubbo?),
            Place::Revision(application, revision) => format!("{}/metadata/{application}/{revision}", dubbo?),
            Place::ServicesRoot => services?.to_owned(),
            Place::Application(application) => format!("{}/{application}", services?),
            Place::Instance(application, instance) => format!("{}/{application}/{instance}", services?),
        })
    }

    /// True if a child of Dubbo's root is an interface.
    pub(crate) fn is_interface(name: &str) -> bool {
        !RESERVED.contains(&name)
    }
}

fn dubbo_place(rest: &str) -> Option<Place<'_>> {
    let mut names = rest.splitn(4, '/');
    Some(match (names.next()?, names.next(), names.next(), names.next()) {
        ("", None, ..) => Place::DubboRoot,
        ("mapping", None, ..) => Place::MappingRoot,
        ("mapping", Some(interface), None, _) => Place::Mapping(interface),
        ("metadata", Some(application), Some(revision), None) => Place::Revision(application, revision),
        (name, ..) if !Layout::is_interface(name) => return None,
        (interface, None, ..) => Place::Interface(interface),
        (interface, Some("providers"), None, _) => Place::Providers(interface),
        (interface, Some("providers"), Some(node), None) => Place::Provider(interface, node),
        (interface, Some("configurators"), None, _) => Place::Configurators(interface),
        (interface, Some("configurators"), Some(node), None) => Place::Configurator(interface, node),
        _ => return None,
    })
}

/// Returns the path below a root: empty for the root itself.
fn below<'a>(root: Option<&str>, path: &'a str) -> Option<&'a str> {
    match path.strip_prefix(root?)? {
        "" => Some(""),
        rest => rest.strip_prefix('/').filter(|rest| !rest.is_empty()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_and_places_are_each_others() {
        let layout = Layout { dubbo: Some("/x/dubbo".into()), services: Some("/x/services".into()) };
        let table = [
            ("/x/dubbo", Place::DubboRoot),
            ("/x/dubbo/a.B", Place::Interface("a.B")),
            ("/x/dubbo/a.B/providers", Place::Providers("a.B")),
            ("/x/dubbo/a.B/providers/dubbo%3A", Place::Provider("a.B", "dubbo%3A")),
            ("/x/dubbo/a.B/configurators", Place::Configurators("a.B")),
            ("/x/dubbo/a.B/configurators/o", Place::Configurator("a.B", "o")),
            ("/x/dubbo/mapping", Place::MappingRoot),
            ("/x/dubbo/mapping/a.B", Place::Mapping("a.B")),
            ("/x/dubbo/metadata/app/1f", Place::Revision("app", "1f")),
            ("/x/services", Place::ServicesRoot),
            ("/x/services/app", Place::Application("app")),
            ("/x/services/app/10.0.0.1:80", Place::Instance("app", "10.0.0.1:80")),
        ];
        for (path, place) in table {
            assert_eq!(layout.place(path), Some(place), "{path}");
            assert_eq!(layout.path(place).as_deref(), Some(path));
        }
        for path in [
            "",
            "/",
            "/x",
            "/x/dubbos",
            "/x/dubbo/",
            "/x/dubbo/metadata",
            "/x/dubbo/metadata/a.B",
            "/x/dubbo/config/dubbo",
            "/x/dubbo/a.B/consumers",
            "/x/dubbo/a.B/consumers/c",
            "/x/dubbo/a.B/routers",
            "/x/dubbo/a.B/providers/p/deeper",
            "/x/dubbo/metadata/a.B/provider/app",
            "/x/services/app/instance/deeper",
        ] {
            assert_eq!(layout.place(path), None, "{path}");
        }
        let none = Layout { dubbo: None, services: None };
        assert_eq!((none.place("/dubbo"), none.path(Place::DubboRoot)), (None, None));
    }
}
