//! Lua scripts: checks that LuaJIT in Envoy compiles them. Envoy rejects a whole listener for one that it
//! cannot compile.
//!
//! The grammar is that of Lua 5.1 with LuaJIT's labels. Values and the limits of the compiler (200 local
//! variables) are not checked.

mod token;

use token::{Lexer, Token};

/// Maximum nesting of blocks and expressions, as in LuaJIT.
const MOST_DEPTH: usize = 190;

const KEYWORDS: [&str; 21] = [
    "and", "break", "do", "else", "elseif", "end", "false", "for", "function", "if", "in", "local", "nil",
    "not", "or", "repeat", "return", "then", "true", "until", "while",
];

const BINARY: [&str; 13] = ["+", "-", "*", "/", "%", "^", "..", "==", "~=", "<=", ">=", "<", ">"];

/// Returns the reason why the script does not compile, with its line; `None` if it compiles.
pub(in crate::validate) fn refusal(script: &str) -> Option<String> {
    let mut parser =
        Parser { lexer: Lexer::new(script), next: Token::End, depth: 0, loops: 0, varargs: true };
    let result = parser.advance().and_then(|()| parser.block()).and_then(|()| match parser.next {
        Token::End => Ok(()),
        _ => parser.unexpected("the end"),
    });
    result.err().map(|why| format!("line {}: {why}", parser.lexer.line()))
}

type Step<T = ()> = Result<T, String>;

struct Parser<'a> {
    lexer: Lexer<'a>,
    next: Token<'a>,
    depth: usize,
    /// Number of enclosing loops within the function.
    loops: usize,
    /// True if the function has varargs (`...`).
    varargs: bool,
}

/// Kind of an expression at the start of a statement.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Variable,
    Call,
    Other,
}

impl<'a> Parser<'a> {
    fn advance(&mut self) -> Step {
        self.next = self.lexer.next()?;
        Ok(())
    }

    fn is(&self, word: &str) -> bool {
        matches!(self.next, Token::Word(next) | Token::Symbol(next) if next == word)
    }

    fn take(&mut self, word: &str) -> Step<bool> {
        let found = self.is(word);
        if found {
            self.advance()?;
        }
        Ok(found)
    }

    fn expect(&mut self, word: &str) -> Step {
        if self.take(word)? { Ok(()) } else { self.unexpected(&format!("{word:?}")) }
    }

    fn unexpected<T>(&self, expected: &str) -> Step<T> {
        Err(format!("expected {expected}, not {}", self.next))
    }

    fn name(&mut self) -> Step {
        match self.next {
            Token::Word(word) if !KEYWORDS.contains(&word) => self.advance(),
            _ => self.unexpected("a name"),
        }
    }

    /// Parses one nesting level deeper.
    fn nested<T>(&mut self, inside: impl FnOnce(&mut Self) -> Step<T>) -> Step<T> {
        self.depth += 1;
        if self.depth > MOST_DEPTH {
            return Err("too many blocks and expressions in each other".to_owned());
        }
        let result = inside(self)?;
        self.depth -= 1;
        Ok(result)
    }

    fn block(&mut self) -> Step {
        self.nested(|parser| {
            while !parser.ends_block() {
                if parser.take(";")? {
                    continue;
                }
                let is_last = parser.is("return");
                parser.statement()?;
                while parser.take(";")? {}
                if is_last && !parser.ends_block() {
                    return parser.unexpected("the end of the block after return");
                }
            }
            Ok(())
        })
    }

    fn ends_block(&self) -> bool {
        self.next == Token::End || ["end", "else", "elseif", "until"].iter().any(|word| self.is(word))
    }

    fn statement(&mut self) -> Step {
        let Token::Word(word) = self.next else {
            return match self.next {
                Token::Symbol("::") => self.label(),
                _ => self.call_or_assignment(),
            };
        };
        match word {
            "if" => self.conditional(),
            "while" => {
                self.advance()?;
                self.expression()?;
                self.expect("do")?;
                self.looped(|parser| parser.block())?;
                self.expect("end")
            }
            "do" => {
                self.advance()?;
                self.block()?;
                self.expect("end")
            }
            "for" => self.counted(),
            "repeat" => {
                self.advance()?;
                self.looped(|parser| parser.block())?;
                self.expect("until")?;
                self.expression()
            }
            "function" => {
                self.advance()?;
                self.name()?;
                while self.take(".")? {
                    self.name()?;
                }
                if self.take(":")? {
                    self.name()?;
                }
                self.function()
            }
            "local" => self.local(),
            "return" => {
                self.advance()?;
                if self.ends_block() || self.is(";") { Ok(()) } else { self.expressions() }
            }
            "break" if self.loops == 0 => Err("break outside of a loop".to_owned()),
            "break" => self.advance(),
            _ => self.call_or_assignment(),
        }
    }

    fn label(&mut self) -> Step {
        self.advance()?;
        self.name()?;
        self.expect("::")
    }

    fn looped(&mut self, inside: impl FnOnce(&mut Self) -> Step) -> Step {
        self.loops += 1;
        inside(self)?;
        self.loops -= 1;
        Ok(())
    }

    fn conditional(&mut self) -> Step {
        self.advance()?;
        self.expression()?;
        self.expect("then")?;
        self.block()?;
        while self.take("elseif")? {
            self.expression()?;
            self.expect("then")?;
            self.block()?;
        }
        if self.take("else")? {
            self.block()?;
        }
        self.expect("end")
    }

    fn counted(&mut self) -> Step {
        self.advance()?;
        self.name()?;
        if self.take("=")? {
            self.expression()?;
            self.expect(",")?;
            self.expression()?;
            if self.take(",")? {
                self.expression()?;
            }
        } else {
            while self.take(",")? {
                self.name()?;
            }
            self.expect("in")?;
            self.expressions()?;
        }
        self.expect("do")?;
        self.looped(|parser| parser.block())?;
        self.expect("end")
    }

    fn local(&mut self) -> Step {
        self.advance()?;
        if self.take("function")? {
            self.name()?;
            return self.function();
        }
        self.name()?;
        while self.take(",")? {
            self.name()?;
        }
        if self.take("=")? { self.expressions() } else { Ok(()) }
    }

    /// Parameters and body of a function.
    fn function(&mut self) -> Step {
        self.expect("(")?;
        let mut varargs = false;
        while !self.is(")") {
            if self.take("...")? {
                varargs = true;
                break;
            }
            self.name()?;
            if !self.take(",")? {
                break;
            }
            if self.is(")") {
                return self.unexpected("a name");
            }
        }
        self.expect(")")?;
        let outer = (std::mem::replace(&mut self.varargs, varargs), std::mem::take(&mut self.loops));
        self.block()?;
        (self.varargs, self.loops) = outer;
        self.expect("end")
    }

    fn call_or_assignment(&mut self) -> Step {
        if self.is("goto") {
            // A variable may have that name, too.
            self.advance()?;
            match self.next {
                Token::Word(word) if !KEYWORDS.contains(&word) => return self.advance(),
                _ => {
                    let kind = self.suffixes(Kind::Variable)?;
                    return self.assigned(kind);
                }
            }
        }
        let kind = self.suffixed()?;
        self.assigned(kind)
    }

    fn assigned(&mut self, first: Kind) -> Step {
        if !self.is("=") && !self.is(",") {
            return if first == Kind::Call { Ok(()) } else { self.unexpected("a call or \"=\"") };
        }
        let mut kind = first;
        while kind == Kind::Variable && self.take(",")? {
            kind = self.suffixed()?;
        }
        if kind != Kind::Variable {
            return Err("only variables can be assigned to".to_owned());
        }
        self.expect("=")?;
        self.expressions()
    }

    fn expressions(&mut self) -> Step {
        self.expression()?;
        while self.take(",")? {
            self.expression()?;
        }
        Ok(())
    }

    /// Precedence of operators is ignored, because it affects values only.
    fn expression(&mut self) -> Step {
        self.nested(|parser| {
            loop {
                while parser.take("not")? || parser.take("-")? || parser.take("#")? {}
                parser.simple()?;
                let is_binary = match parser.next {
                    Token::Word(word) => matches!(word, "and" | "or"),
                    Token::Symbol(symbol) => BINARY.contains(&symbol),
                    _ => false,
                };
                if !is_binary {
                    return Ok(());
                }
                parser.advance()?;
            }
        })
    }

    fn simple(&mut self) -> Step {
        match self.next {
            Token::Number | Token::Text | Token::Word("nil" | "true" | "false") => self.advance(),
            Token::Symbol("...") if !self.varargs => {
                Err("\"...\" outside of a function that has it".to_owned())
            }
            Token::Symbol("...") => self.advance(),
            Token::Symbol("{") => self.table(),
            Token::Word("function") => {
                self.advance()?;
                self.function()
            }
            _ => self.suffixed().map(drop),
        }
    }

    /// Parses a name or an expression in parentheses, followed by fields and calls.
    fn suffixed(&mut self) -> Step<Kind> {
        let kind = match self.next {
            Token::Symbol("(") => {
                self.advance()?;
                self.expression()?;
                self.expect(")")?;
                Kind::Other
            }
            Token::Word(word) if !KEYWORDS.contains(&word) => {
                self.advance()?;
                Kind::Variable
            }
            _ => return self.unexpected("an expression"),
        };
        self.suffixes(kind)
    }

    fn suffixes(&mut self, first: Kind) -> Step<Kind> {
        let mut kind = first;
        loop {
            kind = match self.next {
                Token::Symbol(".") => {
                    self.advance()?;
                    self.name()?;
                    Kind::Variable
                }
                Token::Symbol("[") => {
                    self.advance()?;
                    self.expression()?;
                    self.expect("]")?;
                    Kind::Variable
                }
                Token::Symbol(":") => {
                    self.advance()?;
                    self.name()?;
                    self.arguments()?;
                    Kind::Call
                }
                Token::Symbol("(" | "{") | Token::Text => {
                    self.arguments()?;
                    Kind::Call
                }
                _ => return Ok(kind),
            };
        }
    }

    fn arguments(&mut self) -> Step {
        match self.next {
            Token::Text => self.advance(),
            Token::Symbol("{") => self.table(),
            _ => {
                self.expect("(")?;
                if !self.is(")") {
                    self.expressions()?;
                }
                self.expect(")")
            }
        }
    }

    fn table(&mut self) -> Step {
        self.expect("{")?;
        while !self.is("}") {
            if self.take("[")? {
                self.expression()?;
                self.expect("]")?;
                self.expect("=")?;
            } else if matches!(self.next, Token::Word(_)) && self.lexer.clone().next()? == Token::Symbol("=")
            {
                self.name()?;
                self.expect("=")?;
            }
            self.expression()?;
            if !self.take(",")? && !self.take(";")? {
                break;
            }
        }
        self.expect("}")
    }
}

#[cfg(test)]
mod tests;
