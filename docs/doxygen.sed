# SPDX-License-Identifier: Apache-2.0
# Makes comments of the house's form those that Doxygen reads: in front of what they are about, or behind it on its line.
/SPDX-License-Identifier/d
s|^/\* libtrireme:|/** @file\n * libtrireme:|
# Lines of code in a comment are those that stand further in.
s|^ \*   | *        |
/^ *\/\* ----/b
s|^\( *\)/\* |\1/** |
s|^\(.*[;,{})A-Za-z0-9_] *\)/\* |\1/**< |
