//! The dashboard in a real Chromium: each page, wide and narrow, light and dark, by keyboard, and checked by
//! axe-core.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stderr,
    reason = "a test fails this way, and says what it measured"
)]

mod dashboard {
    pub(crate) mod finding;
    pub(crate) mod large;
    pub(crate) mod pages;
    pub(crate) mod why;
}

#[path = "support/refusing.rs"]
mod refusing;

use pilotfish_testkit::real::{Browser, Pilotfish, Tool};

/// Parts of graphs that are outside of their frame, and texts that are outside of their box.
const OVERFLOWING: &str = "[...document.querySelectorAll('.graph svg')].flatMap((svg) => {
    const frame = svg.viewBox.baseVal;
    const outside = (part, box) => {
        const { x, y, width, height } = part.getBBox();
        return x < box.x - 1 || y < box.y - 1 || x + width > box.x + box.width + 1 || y + height > box.y + box.height + 1;
    };
    const parts = [...svg.querySelectorAll('rect, text, .edge path')].filter((part) => outside(part, frame));
    const texts = [...svg.querySelectorAll('.node')].flatMap((node) => {
        const box = node.querySelector('rect').getBBox();
        return [...node.querySelectorAll('text')].filter((text) => outside(text, box));
    });
    return [...parts, ...texts].map((part) => part.outerHTML);
})";

/// A dashboard that is looked at.
struct Dashboard {
    browser: Browser,
    address: String,
    axe: String,
}

impl Dashboard {
    /// `None` where no browser is there, and none is required.
    async fn of(pilotfish: &Pilotfish) -> Option<Self> {
        let packages = Tool::DashboardPackages.find()?;
        let browser = Browser::start().await?;
        let axe = std::fs::read_to_string(packages.join("axe-core/axe.min.js")).unwrap();
        Some(Self { browser, address: format!("http://127.0.0.1:{}", pilotfish.admin_port()), axe })
    }

    /// Opens a page by what stands behind `#`.
    async fn open(&mut self, page: &str) {
        self.browser.open(&format!("{}/dashboard/#/{page}", self.address)).await;
    }

    /// Waits until a text is shown.
    async fn shows(&mut self, text: &str) {
        self.browser.until(&format!("document.body.innerText.includes({text:?})")).await;
    }

    /// Leads the focus to an element by the name that a screen reader says, with the Tab key alone.
    async fn tab_to(&mut self, name: &str) {
        for _ in 0..80 {
            self.browser.press("Tab").await;
            let focused = "(e => (e?.getAttribute?.('aria-label') ?? e?.labels?.[0]?.innerText ?? e?.innerText ?? '').trim())(document.activeElement)";
            if self.browser.evaluate(focused).await == name {
                return;
            }
        }
        panic!("80 times Tab do not lead to {name:?}");
    }

    /// Leads the focus to an element of which a script on `element` says that it is the one, with the Tab key
    /// alone.
    async fn tab_until(&mut self, is_it: &str) {
        let script = format!("(element => Boolean({is_it}))(document.activeElement)");
        for _ in 0..80 {
            self.browser.press("Tab").await;
            if self.browser.evaluate(&script).await == true {
                return;
            }
        }
        panic!("80 times Tab do not lead to an element of which this is true: {is_it}");
    }

    /// What the page must not have: exceptions, violations of its policy or of WCAG, and parts that stick out
    /// of the window.
    async fn is_well(&mut self, what: &str) {
        assert_eq!(self.browser.take_trouble(), Vec::<String>::new(), "{what}");
        let wider = "document.documentElement.scrollWidth - window.innerWidth";
        assert!(
            self.browser.evaluate(wider).await.as_i64().unwrap() <= 0,
            "{what}: it is wider than its window"
        );
        let overflowing = self.browser.evaluate(OVERFLOWING).await;
        assert_eq!(overflowing.as_array().map(Vec::len), Some(0), "{what}: {overflowing:#}");
        let script = format!("{}; true", self.axe);
        self.browser.evaluate(&script).await;
        let run = "axe.run().then(({violations}) => violations.map(({id, help, nodes}) => \
                   `${id}: ${help}: ${nodes.map(({html}) => html.slice(0, 200)).slice(0, 3).join(' ')}`))";
        let violations = self.browser.evaluate(run).await;
        assert_eq!(violations.as_array().map(Vec::len), Some(0), "{what}: {violations:#}");
    }
}
