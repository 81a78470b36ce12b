#!/bin/sh
# Bundles the libraries of reports into plugin/report/assets/vendor, with their licences.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
out=$here/../../plugin/report/assets/vendor
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cp "$here/package.json" "$here/package-lock.json" "$here/libraries.mjs" "$work"
cd "$work"
npm ci --ignore-scripts --no-audit --no-fund >/dev/null
# The package for this platform contains the program itself.
esbuild=$(ls node_modules/@esbuild/*/bin/esbuild)
"$esbuild" libraries.mjs --bundle --minify --format=iife --target=es2020 --charset=ascii --legal-comments=none \
    --log-level=warning --outfile="$out/vendor.min.js"
"$esbuild" node_modules/elkjs/lib/elk-worker.min.js --minify --target=es2020 --charset=ascii --legal-comments=none \
    --log-level=warning --outfile="$out/elk-worker.min.js"
for name in cytoscape echarts zrender tslib elkjs; do
    folder=node_modules/$name
    version=$(sed -n 's/.*"version": "\(.*\)".*/\1/p' "$folder/package.json" | head -1)
    printf '==== %s %s ====\n\n' "$name" "$version"
    cat "$folder"/LICEN[CS]E* "$folder"/NOTICE* 2>/dev/null || true
    printf '\n\n'
done | sed 's/[[:space:]]*$//' >"$out/LICENCES.txt"
if grep -il '</script' "$out"/*.js; then
    echo "a bundle would end its element" >&2
    exit 1
fi
