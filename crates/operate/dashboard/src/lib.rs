//! The files of the web dashboard: a page, style sheets, ES modules, and libraries of others with their
//! licences.
//!
//! They are plain files below `assets/`; nothing is generated from them but their compressed form. All but
//! the page are served below a path that is a hash of them all ([`VERSION`]), so a browser that has one need
//! not ask for it again, and never mixes those of two versions.

use flate2::read::GzDecoder;
use std::io::Read;

/// One file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asset {
    path: &'static str,
    length: usize,
    gzip: &'static [u8],
}

/// What `build.rs` writes.
mod table {
    use super::Asset;

    include!(concat!(env!("OUT_DIR"), "/assets.rs"));
}

/// A hash of all files: the first part of the path of each but the page.
pub const VERSION: &str = table::VERSION;

/// The page.
const INDEX: &str = "index.html";

/// The page, which is served under the dashboard's own path.
#[must_use]
pub fn index() -> Option<&'static Asset> {
    find(INDEX)
}

/// A file by its path below [`VERSION`].
#[must_use]
pub fn find(path: &str) -> Option<&'static Asset> {
    let assets = table::ASSETS;
    assets.binary_search_by(|asset| asset.path.cmp(path)).ok().and_then(|at| assets.get(at))
}

/// All files, by path.
pub fn all() -> impl Iterator<Item = &'static Asset> {
    table::ASSETS.iter()
}

impl Asset {
    /// Its path below [`VERSION`].
    #[must_use]
    pub const fn path(&self) -> &'static str {
        self.path
    }

    /// Its content, compressed with gzip.
    #[must_use]
    pub const fn gzip(&self) -> &'static [u8] {
        self.gzip
    }

    /// Its content, for those who cannot read gzip; empty where that fails, which a test excludes.
    #[must_use]
    pub fn content(&self) -> Vec<u8> {
        let mut content = Vec::with_capacity(self.length);
        match GzDecoder::new(self.gzip).read_to_end(&mut content) {
            Ok(_) => content,
            Err(_) => Vec::new(),
        }
    }

    /// Its media type.
    #[must_use]
    pub fn content_type(&self) -> &'static str {
        match self.path.rsplit('.').next().unwrap_or_default() {
            "html" => "text/html; charset=utf-8",
            "css" => "text/css; charset=utf-8",
            "js" => "text/javascript; charset=utf-8",
            "svg" => "image/svg+xml",
            _ => "text/plain; charset=utf-8",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_is_found_and_is_what_it_was() {
        for asset in all() {
            assert_eq!(find(asset.path()), Some(asset));
            assert_eq!(asset.content().len(), asset.length, "{}", asset.path());
        }
        assert_eq!(find("js/none.js"), None);
    }

    #[test]
    fn the_page_names_files_that_are_there() {
        let page = String::from_utf8(index().unwrap().content()).unwrap();
        let named = page.split('"').filter_map(|text| text.strip_prefix(VERSION)?.strip_prefix('/'));
        let named: Vec<&str> = named.collect();
        assert!(named.len() > 3, "{page}");
        for path in named {
            assert!(find(path).is_some(), "{path}");
        }
    }

    #[test]
    fn nothing_is_written_into_the_page_that_its_policy_forbids() {
        for asset in all().filter(|asset| asset.path().ends_with(".html")) {
            let page = String::from_utf8(asset.content()).unwrap();
            for forbidden in ["<script>", "style=", " onclick", "javascript:", "http://", "https://"] {
                assert!(!page.contains(forbidden), "{}: {forbidden}", asset.path());
            }
        }
        for asset in all().filter(|asset| asset.path().starts_with("js/")) {
            let text = String::from_utf8(asset.content()).unwrap();
            for forbidden in ["innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval("] {
                assert!(!text.contains(forbidden), "{}: {forbidden}", asset.path());
            }
        }
    }
}
