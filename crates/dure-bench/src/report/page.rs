//! A page in HTML that needs nothing outside of it.

use std::fmt::Write;

const STYLE: &str = "body{font:15px/1.5 sans-serif;max-width:960px;margin:2em auto;padding:0 1em;\
    color:#222}table{border-collapse:collapse;margin:1em 0;font-size:13px}th,td{padding:3px 9px;\
    border-bottom:1px solid #ddd;text-align:right}th:first-child,td:first-child,td:last-child{\
    text-align:left}th{background:#f4f4f4}.bar{display:flex;height:18px;width:340px}.bar span{\
    display:block}.key span{padding:1px 8px;margin-right:6px;color:#fff}svg{max-width:100%;height:auto}";

/// A page that is being written, from its top.
#[derive(Debug)]
pub struct Page(String);

impl Page {
    /// A page with a title and a head.
    #[must_use]
    pub fn new(title: &str, head: &str) -> Page {
        let mut page = Page(format!(
            "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>{}</title><style>\
             {STYLE}</style></head><body>\n",
            escaped(title)
        ));
        page.text("h1", head);
        page
    }

    /// An element with a text.
    pub fn text(&mut self, element: &str, text: &str) {
        let _ = writeln!(self.0, "<{element}>{}</{element}>", escaped(text));
    }

    /// What is HTML already, as a drawing is.
    pub fn html(&mut self, html: &str) {
        self.0.push_str(html);
        self.0.push('\n');
    }

    /// A list of texts.
    pub fn list<T: AsRef<str>>(&mut self, items: impl IntoIterator<Item = T>) {
        self.0.push_str("<ul>\n");
        for item in items {
            self.text("li", item.as_ref());
        }
        self.0.push_str("</ul>\n");
    }

    /// A table; cells of its rows are HTML.
    pub fn table<const N: usize>(
        &mut self,
        heads: [&str; N],
        rows: impl IntoIterator<Item = [String; N]>,
    ) {
        self.0.push_str("<table>\n");
        self.row("th", heads.map(escaped));
        for cells in rows {
            self.row("td", cells);
        }
        self.0.push_str("</table>\n");
    }

    fn row<const N: usize>(&mut self, element: &str, cells: [String; N]) {
        self.0.push_str("<tr>");
        for cell in cells {
            let _ = write!(self.0, "<{element}>{cell}</{element}>");
        }
        self.0.push_str("</tr>\n");
    }

    /// The whole page.
    #[must_use]
    pub fn end(mut self) -> String {
        self.0.push_str("</body></html>\n");
        self.0
    }
}

/// A text as HTML.
#[must_use]
pub fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_escaped_and_html_is_not() {
        let mut page = Page::new("a < b", "head");
        page.list(["1 & 2"]);
        page.html("<svg></svg>");
        page.table(["x<"], [["<b>y</b>".to_owned()]]);
        let page = page.end();
        for part in [
            "<title>a &lt; b</title>",
            "<h1>head</h1>",
            "<li>1 &amp; 2</li>",
            "\n<svg></svg>\n",
            "<th>x&lt;</th>",
            "<td><b>y</b></td>",
        ] {
            assert!(page.contains(part), "{part}: {page}");
        }
    }
}
