//! Browser for tests of the dashboard, as part of `cargo xtask tools`.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};

use crate::tools::make_executable;
use crate::{debian, process};

/// Debian's packages of the headless browser, a font, and the libraries that a small system lacks, as of
/// Debian 12.
const PACKAGES: &[&str] = &[
    "chromium-common",
    "chromium-headless-shell",
    "fonts-dejavu-core",
    "libasound2",
    "libasyncns0",
    "libatk1.0-0",
    "libatspi2.0-0",
    "libbrotli1",
    "libbsd0",
    "libdav1d6",
    "libdbus-1-3",
    "libdouble-conversion3",
    "libdrm2",
    "libexpat1",
    "libffi8",
    "libflac12",
    "libfontconfig1",
    "libfreetype6",
    "libgbm1",
    "libglib2.0-0",
    "libgraphite2-3",
    "libharfbuzz-subset0",
    "libharfbuzz0b",
    "libjpeg62-turbo",
    "liblcms2-2",
    "libmd0",
    "libminizip1",
    "libmp3lame0",
    "libmpg123-0",
    "libnspr4",
    "libnss3",
    "libogg0",
    "libopenh264-7",
    "libopenjp2-7",
    "libopus0",
    "libpng16-16",
    "libpulse0",
    "libsndfile1",
    "libvorbis0a",
    "libvorbisenc2",
    "libwayland-server0",
    "libx11-6",
    "libx11-xcb1",
    "libxau6",
    "libxcb1",
    "libxcomposite1",
    "libxdamage1",
    "libxdmcp6",
    "libxext6",
    "libxfixes3",
    "libxi6",
    "libxkbcommon0",
    "libxnvctrl0",
    "libxrandr2",
    "libxrender1",
];

/// Restricts fonts to the one of the packages, so that pages render equally on all machines.
const FONTS: &str = "<?xml version=\"1.0\"?>\n<!DOCTYPE fontconfig SYSTEM \"fonts.dtd\">\n<fontconfig>\n  \
    <dir>HERE/root/usr/share/fonts</dir>\n  <cachedir>HERE/font-cache</cachedir>\n</fontconfig>\n";

/// Brings a folder with `chromium`: Debian's packages, unpacked and not installed.
///
/// # Errors
/// When they are unavailable, or do not run here.
pub(crate) fn bring(folder: &Path) -> Result<()> {
    let place = folder.join("chromium");
    let _ = fs::remove_dir_all(&place);
    fs::create_dir_all(&place).context("cannot make a folder for the browser")?;
    let root = place.join("root");
    debian::unpack(&root, PACKAGES)?;
    let program = "root/usr/lib/chromium/chromium-headless-shell";
    if !place.join(program).exists() {
        bail!("the packages hold no {program}");
    }
    let libraries = root.join("usr/lib").join(format!("{}-linux-gnu", std::env::consts::ARCH));
    let inside = libraries.strip_prefix(&place).map(|path| path.display().to_string())?;
    // Relative to the script: the folder of tools may be moved, or be a link.
    let text = format!(
        "#!/bin/sh\nhere=$(dirname -- \"$(readlink -f -- \"$0\")\")\nfonts=\"$here/fonts.conf\"\n\
         [ -e \"$fonts\" ] || sed \"s|HERE|$here|g\" \"$here/fonts.in\" > \"$fonts\"\n\
         export FONTCONFIG_FILE=\"$fonts\" LD_LIBRARY_PATH=\"$here/{inside}:$here/{inside}/pulseaudio\"\n\
         exec \"$here/{program}\" \"$@\"\n"
    );
    fs::write(place.join("fonts.in"), FONTS).context("cannot write the settings of fonts")?;
    let script = place.join("chromium");
    fs::write(&script, text).with_context(|| format!("cannot write {}", script.display()))?;
    make_executable(&script)?;
    process::output(process::command(&script).args(["--no-sandbox", "--version"])).map(drop)
}
