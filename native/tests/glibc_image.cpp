void placeholder_glibc_image();
