use super::refusal;

/// Both tables are what LuaJIT in Envoy 1.40 says.
#[test]
fn what_compiles_is_taken() {
    for script in [
        "function envoy_on_request(h) h:headers():add('a', 'b') end",
        "local a, b = 1, 2; a, b = b, a",
        "local t = {1, 2; x = 3, ['y'] = 4, f = function() return 1 end,}",
        "for i = 1, 10 do if i > 5 then break end end",
        "for k, v in pairs({}) do print(k, v) end",
        "repeat local x = 1 until x == 1",
        "while false do end",
        "goto done\n::done::",
        "local s = [==[ a ]] b ]==] .. \"c\\n\\x41\\065\\z   d\"",
        "-- comment\n--[[ long\ncomment ]] local x = 0x1F + 1e3 + .5 + 5LL",
        "f 'a' { 1 } (2)",
        "a.b.c:d(1)['x'].y = 3",
        "return",
        "return 1, 2;",
        "local function f(...) return select('#', ...) end",
        "x = not a and -b or #c ^ 2",
        "(f or g)(1)",
        "local a = b == c ~= d",
        "print(...)",
        "local x = 1 local y = 2",
        "local x = 1;; local y = 2",
        ";x = 1",
        "do return end",
        "function a.b:c() end",
        "x = \"\\u{48}\"",
        "if a then elseif b then else end",
        "f()\n(g)()",
        "",
        "x = 0x.8p1",
        "x = 3i",
        "local ä = 1",
        "while true do break print(1) end",
        "local t = { a.b, f(), [1] = 2 }",
        "goto = 1",
    ] {
        assert_eq!(refusal(script), None, "{script}");
    }
}

#[test]
fn what_does_not_compile_is_refused_with_its_line() {
    for (script, why) in [
        ("function (", "line 1: expected a name, not \"(\""),
        ("x = 1\ny =", "line 2: expected an expression, not the end"),
        ("local 1 = 2", "line 1: expected a name, not a number"),
        ("if a then", "line 1: expected \"end\", not the end"),
        ("for i = 1 do end", "line 1: expected \",\", not \"do\""),
        ("return 1 print(2)", "line 1: expected the end of the block after return, not \"print\""),
        ("break", "line 1: break outside of a loop"),
        ("while a do local f = function() break end end", "line 1: break outside of a loop"),
        ("x = 'a", "line 1: a text is not closed"),
        ("x = \"a\nb\"", "line 1: a text is not closed"),
        ("a.b", "line 1: expected a call or \"=\", not the end"),
        ("a + 1", "line 1: expected a call or \"=\", not \"+\""),
        ("(a) = 1", "line 1: only variables can be assigned to"),
        ("f() = 1", "line 1: only variables can be assigned to"),
        ("a, f() = 1, 2", "line 1: only variables can be assigned to"),
        ("local function f() return ... end", "line 1: \"...\" outside of a function that has it"),
        ("x = 08x", "line 1: \"08x\" is no number"),
        ("x = '\\q'", "line 1: an escape is not known"),
        ("x = '\\300'", "line 1: an escape is not known"),
        ("end", "line 1: expected the end, not \"end\""),
        ("x = }", "line 1: expected an expression, not \"}\""),
        ("f(", "line 1: expected an expression, not the end"),
        ("--[[ a", "line 1: a comment is not closed"),
        ("x = [[a", "line 1: a text is not closed"),
        ("!x", "line 1: '!' is not known"),
        ("x != y", "line 1: '!' is not known"),
        ("a:b", "line 1: expected \"(\", not the end"),
        ("function f(a,) end", "line 1: expected a name, not \")\""),
        ("function f(..., a) end", "line 1: expected \")\", not \",\""),
        ("for a, b = 1, 2 do end", "line 1: expected \"in\", not \"=\""),
        ("if (x == 1) { y = 2 }", "line 1: expected \"then\", not the end"),
        ("local t = { a.b = 1 }", "line 1: expected \"}\", not \"=\""),
        ("local a <const> = 1", "line 1: expected an expression, not \"<\""),
        ("x = 1 // 2", "line 1: expected an expression, not \"/\""),
        ("x += 1", "line 1: expected a call or \"=\", not \"+\""),
    ] {
        assert_eq!(refusal(script).as_deref(), Some(why), "{script}");
    }
}

#[test]
fn no_script_makes_it_panic_or_takes_long() {
    for script in [
        "'\\",
        "'\\x",
        "'\\x4",
        "'\\u{",
        "[",
        "[=",
        "--",
        "--[",
        "0x",
        "1e",
        "'\\1",
        "goto",
        "::",
        "ä",
        "\u{1F600}",
    ] {
        refusal(script);
    }
    for piece in ["(", "{", "-", "not ", "do ", "a.", "f(", "function() ", "[["] {
        assert!(refusal(&format!("x = {}", piece.repeat(50_000))).is_some(), "{piece}");
    }
}
